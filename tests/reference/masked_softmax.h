// reference/masked_softmax.h: softmax over the first valid entries of each row, as its formula says.
#pragma once

#include <vector>

#include <qkv/tensor.h>
#include <qkv/weigh.h>

namespace qkv::reference {

// Takes what qkv::masked_softmax takes; dense, of the shape of the scores. OnEmpty::error answers like zero.
template <class T>
std::vector<T> masked_softmax(const View& scores, const View& valid_lens, OnEmpty on_empty);

}  // namespace qkv::reference
