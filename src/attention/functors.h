// attention/functors.h: calls of users' functions, for the dtype of the computation.
#pragma once

#include <qkv/mask.h>
#include <qkv/score.h>

namespace qkv {

inline void call(const mask_part::EditBy& edit, const ScoreBlock<float>& block) {
  edit.call_float(edit.function, block);
}
inline void call(const mask_part::EditBy& edit, const ScoreBlock<double>& block) {
  edit.call_double(edit.function, block);
}
inline void derive(const mask_part::EditBy& edit, const SlopeBlock<float>& block) {
  edit.derive_float(edit.derivative, block);
}
inline void derive(const mask_part::EditBy& edit, const SlopeBlock<double>& block) {
  edit.derive_double(edit.derivative, block);
}

inline void call(const Score& score, const ScoreTile<float>& tile) { score.call_float(score.function, tile); }
inline void call(const Score& score, const ScoreTile<double>& tile) { score.call_double(score.function, tile); }
inline void derive(const Score& score, const SlopeTile<float>& tile) { score.derive_float(score.derivative, tile); }
inline void derive(const Score& score, const SlopeTile<double>& tile) { score.derive_double(score.derivative, tile); }

}  // namespace qkv
