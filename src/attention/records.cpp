// attention/records.cpp: fetches the records of a block.
#include "attention/records.h"

#include <algorithm>

#include "attention/load.h"

namespace qkv {
namespace {

// A block of so many values at most fits half of the first-level cache wherever it lies, and is not copied.
constexpr std::int64_t few_values = 4096;

}  // namespace

// Takes the block in hand; the answer is whether some of its keys are excluded for all.
template <class T>
bool Records<T>::begin(const PanelGroup& group, Sight<T>& sight) {
  batch_ = group.batch;
  block_ = sight.block();
  finite_ = Finite::unknown;
  return sight.find_gaps();
}

template <class T>
void Records<T>::fetch(const PanelGroup& group, Sight<T>& sight, const typename Strategy<T>::Way* way, bool values) {
  const bool gaps = begin(group, sight);
  fetch_keys(group, way, gaps);
  if (!values) return;

  // Where pairs are excluded, by a mask or by a compact kernel's 0, decode may have to look at the values as T.
  const bool excludes = sight.excludes() || problem_.weighing.compact;
  const bool few =
      (block_.last - block_.first) * problem_.Dv <= few_values && problem_.Dv % strategy_.panel->strip == 0;
  const bool as_they_are = strategy_.decode ? problem_.v.dtype() == dtype_of<T> || !excludes : few;
  const std::int64_t head = group.head / problem_.group;
  if (strategy_.values_direct && as_they_are && !gaps) {
    values_ = in_place(problem_.v, head);
  } else if (strategy_.decode) {
    values_ = copy(problem_.v, head, problem_.Dv, gaps, w_.values, strategy_.value_width(problem_));
  } else {
    const bool finite = spread(problem_.v, head, problem_.Dv, gaps, w_.values, w_.strip_stride);
    values_ = {reinterpret_cast<const std::byte*>(w_.values), strategy_.panel->strip, sizeof(T), true};
    finite_ = finite ? Finite::yes : Finite::no;
  }
}

template <class T>
bool Records<T>::fetch_for_gradients(const PanelGroup& group, Sight<T>& sight, const typename Strategy<T>::Way* way,
                                     std::int64_t product_width, T* key_strips, std::ptrdiff_t strip_stride) {
  const bool gaps = begin(group, sight);
  fetch_keys(group, way, gaps);
  const View& v = problem_.v;
  const std::int64_t head = group.head / problem_.group;
  values_ =
      strategy_.values_direct && !gaps ? in_place(v, head) : copy(v, head, problem_.Dv, gaps, w_.values, problem_.Dv);
  if (way == nullptr) return true;
  return spread(way->score->k, group.head / way->score->key_group, product_width, gaps, key_strips, strip_stride);
}

template <class T>
void Records<T>::fetch_keys(const PanelGroup& group, const typename Strategy<T>::Way* way, bool gaps) {
  if (way == nullptr) return;
  const ScoreWay& score = *way->score;
  const std::int64_t head = group.head / score.key_group;
  keys_ = way->direct && !gaps ? in_place(score.k, head) : copy(score.k, head, score.width, gaps, w_.keys, score.width);
}

template <class T>
typename Records<T>::Rows Records<T>::copy(const View& view, std::int64_t head, std::int64_t width, bool gaps,
                                           T* target, std::ptrdiff_t target_stride) const {
  stage(view, head, width, gaps, [&](std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride) {
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(rows + r * stride, width, target + (row + r) * target_stride);
  });
  return {reinterpret_cast<const std::byte*>(target), target_stride, sizeof(T), true};
}

// Into strips; the answer is whether all are finite.
template <class T>
bool Records<T>::spread(const View& view, std::int64_t head, std::int64_t width, bool gaps, T* target,
                        std::ptrdiff_t strip_stride) const {
  const auto& kernels = *strategy_.panel;
  bool finite = true;
  stage(view, head, width, gaps, [&](std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride) {
    finite &= kernels.spread(
        {rows, stride, static_cast<int>(count), static_cast<int>(width), target + row * kernels.strip, strip_stride});
  });
  return finite;
}

template <class T>
typename Records<T>::Rows Records<T>::in_place(const View& rows, std::int64_t head) const {
  const auto size = static_cast<std::ptrdiff_t>(size_of(rows.dtype()));
  const std::int64_t at = batch_ * rows.stride(0) + head * rows.stride(1) + block_.first * rows.stride(2);
  return {static_cast<const std::byte*>(rows.data()) + at * size, rows.stride(2), size, false};
}

// Hands over the block's rows as T: all at once where they can be taken as they lie, else one by one, with zeros for
// those that must not be read.
template <class T>
void Records<T>::stage(const View& view, std::int64_t head, std::int64_t width, bool gaps,
                       FunctionRef<void(std::int64_t, std::int64_t, const T*, std::ptrdiff_t)> keep) const {
  const std::int64_t stride = view.stride(2);
  const std::int64_t base = batch_ * view.stride(0) + head * view.stride(1);
  if (view.dtype() == dtype_of<T> && view.stride(3) == 1 && !gaps) {
    return keep(0, block_.last - block_.first, view.as<T>() + base + block_.first * stride, stride);
  }
  for (std::int64_t key = block_.first; key < block_.last; ++key) {
    if (gaps && w_.visible[key - block_.first] == 0) {
      std::fill_n(w_.row, width, T(0));
    } else {
      load_row(view, base + key * stride, view.stride(3), width, w_.row);
    }
    keep(key - block_.first, 1, w_.row, 0);
  }
}

// Of the block in hand. The panel kernel has found out while copying them.
template <class T>
bool Records<T>::values_finite() {
  if (finite_ != Finite::unknown) return finite_ == Finite::yes;
  finite_ = Finite::yes;
  const auto* values = reinterpret_cast<const T*>(values_.data);
  for (std::int64_t j = 0; j < block_.last - block_.first; ++j) {
    if (!strategy_.rows->finite(values + j * values_.stride, problem_.Dv)) finite_ = Finite::no;
  }
  return finite_ == Finite::yes;
}

template class Records<float>;
template class Records<double>;

}  // namespace qkv
