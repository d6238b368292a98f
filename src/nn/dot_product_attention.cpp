// nn/dot_product_attention.cpp: attention by scaled dot products.
#include <qkv/nn.h>

#include "nn/check.h"

namespace qkv::nn {

DotProductAttention::DotProductAttention(Init& init, const AttentionOptions& with)
    : attention(with), stream(init.next()) {
  require_probability("DotProductAttention", attention.dropout);
}

Variable DotProductAttention::operator()(const Variable& q, const Variable& k, const Variable& v, const Mode& mode,
                                         const AttendOptions& options) const {
  return attend(q, k, v, with_layer("DotProductAttention", options, attention.dropout, mode, stream));
}

}  // namespace qkv::nn
