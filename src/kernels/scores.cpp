// kernels/scores.cpp: the table of scores that are not dot products.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scores.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/additive-inl.h"
#include "kernels/block.h"
#include "kernels/distance-inl.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

template <class T>
constexpr ScoreKernels<T> panel_score_table = {additive_of_panel<T>, additive_direct_of_panel<T>,
                                               distance<T, squared_distances_of_panel<T>>};
template <class T>
constexpr ScoreKernels<T> decode_score_table = {additive_of_rows<T>, additive_direct_of_rows<T>,
                                                distance<T, squared_distances_of_rows<T>>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const ScoreKernels<float>& panel_score_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, panel_score_table<float>);
}
template <>
const ScoreKernels<double>& panel_score_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, panel_score_table<double>);
}
template <>
const ScoreKernels<float>& decode_score_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, decode_score_table<float>);
}
template <>
const ScoreKernels<double>& decode_score_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, decode_score_table<double>);
}

}  // namespace qkv::kernels
#endif
