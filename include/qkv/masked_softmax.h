// qkv/masked_softmax.h: softmax over the first valid_len entries of each row.
#pragma once

#include <qkv/export.h>
#include <qkv/tensor.h>
#include <qkv/weigh.h>

namespace qkv {

// Softmax along the last axis, where only the first valid_len entries of a row count and the others get weight 0.
//
//   scores      [Tq, Tk] or [B, Tq, Tk]; floating; rank 2 is one sequence
//   valid_lens  absent: all count; [B]: one per sequence; [B, Tq]: one per row; int32 or int64, 0..Tk
//
// A row with valid_len 0 gets what on_empty says; OnEmpty::uniform is what Dive into Deep Learning's masked_softmax
// gives. Entries beyond valid_len have no influence, NaN or not. The result has the dtype of the scores.
// Throws ShapeError, DtypeError, OptionError.
QKV_API Tensor masked_softmax(View scores, View valid_lens = {}, OnEmpty on_empty = OnEmpty::zero);

}  // namespace qkv
