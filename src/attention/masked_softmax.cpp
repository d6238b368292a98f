// attention/masked_softmax.cpp: softmax over the first valid_len entries of each row.
#include <qkv/masked_softmax.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include <qkv/error.h>

#include "attention/load.h"
#include "attention/resolved_mask.h"
#include "base/aligned.h"
#include "base/message.h"
#include "base/numbers.h"
#include "kernels/block.h"

namespace qkv {
namespace {

template <class T>
void softmax_rows(const View& scores, const ResolvedMask& mask, OnEmpty on_empty, const MutableView& result) {
  const std::int64_t B = scores.extent(0), Tq = scores.extent(1), Tk = scores.extent(2);
  const std::int64_t room = (Tk + kernels::decode_pad - 1) / kernels::decode_pad * kernels::decode_pad;
  Scratch scratch;
  T* row = static_cast<T*>(scratch.get(static_cast<std::size_t>(room) * sizeof(T)));
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t i = 0; i < Tq; ++i) {
      const std::int64_t length = mask.range(b, i).last;
      T factor = 1;
      std::fill(row + length, row + room, T(0));
      if (length > 0) {
        load_row(scores, b * scores.stride(0) + i * scores.stride(1), scores.stride(2), length, row);
        // A block of one row and `length` keys. The maximum goes first, so that the change of unit rounds small
        // numbers.
        constexpr T lowest = -infinity<T>;
        T max = lowest, running_max = lowest, sum = 0, rescale = 0;
        for (std::int64_t j = 0; j < length; ++j) max = std::max(max, row[j]);
        for (std::int64_t j = 0; j < length; ++j) row[j] = (row[j] - max) * std::numbers::log2e_v<T>;
        kernels::decode_kernels<T>(current_isa())
            .weigh({row, 1, static_cast<int>(length), nullptr, &running_max, &sum, &rescale});
        factor = T(1) / sum;
        if (max == lowest) factor = quiet_nan<T>;
      } else if (on_empty == OnEmpty::error) {
        throw OptionError(
            message("masked_softmax: row ", i, " of sequence ", b, " has valid length 0, and on_empty is error"));
      } else if (on_empty != OnEmpty::zero) {
        std::fill_n(row, Tk, on_empty == OnEmpty::nan ? quiet_nan<T> : T(1) / static_cast<T>(Tk));
      }
      const std::int64_t at = b * result.stride(0) + i * result.stride(1);
      store_row(row, length > 0 ? length : Tk, factor, result, at, 1);
    }
  }
}

}  // namespace

Tensor masked_softmax(View scores, View valid_lens, OnEmpty on_empty) {
  if (scores.rank() != 2 && scores.rank() != 3) {
    throw ShapeError(message("masked_softmax: scores must be [Tq, Tk] or [B, Tq, Tk], not ", scores.shape().text()));
  }
  if (!is_floating(scores.dtype())) {
    throw DtypeError(message("masked_softmax: scores must be floating, not ", name_of(scores.dtype())));
  }
  Tensor result(scores.shape(), scores.dtype());
  const auto rank3 = [](const View& view) {
    return view.rank() == 3 ? view
                            : View(view.data(), view.dtype(), Shape{1, view.extent(0), view.extent(1)},
                                   Strides{0, view.stride(0), view.stride(1)});
  };
  const View rows = rank3(scores);
  if (rows.extent(2) > std::numeric_limits<int>::max() - kernels::decode_pad) {
    throw ShapeError(
        message("masked_softmax: rows of more than 2^31 entries are not supported: ", scores.shape().text()));
  }
  const ResolvedMask mask(valid_lens ? lengths(valid_lens) : Mask(),
                          {rows.extent(0), 1, rows.extent(1), rows.extent(2)}, "masked_softmax");
  const View shape = rank3(result.view());
  const MutableView target(result.view().data(), result.dtype(), shape.shape(), shape.strides());
  if (scores.dtype() == Dtype::float64) {
    softmax_rows<double>(rows, mask, on_empty, target);
  } else {
    softmax_rows<float>(rows, mask, on_empty, target);
  }
  return result;
}

}  // namespace qkv
