// attention/mask.cpp: the factories of qkv/mask.h.
#include <qkv/mask.h>

namespace qkv {

Alignment top_left() { return {.kind = Alignment::Kind::top_left}; }
Alignment bottom_right() { return {.kind = Alignment::Kind::bottom_right}; }
Alignment offset(std::int64_t offset) { return {.kind = Alignment::Kind::offset, .offset = offset}; }
Alignment offset(View offsets) { return {.kind = Alignment::Kind::offsets, .offsets = offsets}; }

Mask lengths(View valid_lens) { return Mask(mask_part::Lengths{valid_lens}); }
Mask causal(const Alignment& alignment) { return Mask(mask_part::Causal{alignment}); }
Mask window(std::int64_t left, std::int64_t right, const Alignment& alignment) {
  return Mask(mask_part::Window{left, right, alignment});
}
Mask keep(View may_attend) { return Mask(mask_part::Keep{may_attend}); }
Mask drop(View may_not_attend) { return Mask(mask_part::Drop{may_not_attend}); }
Mask keep_keys(View may_be_attended) { return Mask(mask_part::KeepKeys{may_be_attended}); }
Mask bias(View added) { return Mask(mask_part::Bias{added}); }
Mask alibi(View slopes, const Alignment& alignment) { return Mask(mask_part::Alibi{slopes, alignment}); }
Mask block_mask(View may_attend, std::int64_t queries, std::int64_t keys) {
  return Mask(mask_part::BlockMask{may_attend, queries, keys});
}

}  // namespace qkv
