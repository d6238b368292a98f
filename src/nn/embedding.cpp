// nn/embedding.cpp: a table of rows and their lookup.
#include <cstring>

#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "nn/check.h"
#include "nn/parameters.h"

namespace qkv::nn {

Embedding::Embedding(std::int64_t rows, std::int64_t width, Init& init, const EmbeddingOptions& with) : options(with) {
  require_sizes("Embedding", {{"rows", rows}, {"width", width}});
  if (options.padding && (*options.padding < 0 || *options.padding >= rows)) {
    throw OptionError(message("Embedding: there is no row ", *options.padding, " for padding among ", rows));
  }
  weight = init.normal({rows, width});
  if (options.padding && width > 0) {
    const MutableView row = weight.mutable_value().slice(0, *options.padding, 1);
    std::memset(row.data(), 0, static_cast<std::size_t>(width) * size_of(row.dtype()));
  }
}

Variable Embedding::operator()(View ids) const { return embedding(weight, ids, options.padding); }

Parameters Embedding::parameters(const std::string& prefix) const { return listed(prefix, {{"weight", weight}}); }

}  // namespace qkv::nn
