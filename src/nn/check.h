// nn/check.h: what layers ask of their options.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <qkv/nn.h>

namespace qkv::nn {

struct NamedSize {
  const char* name;
  std::int64_t size;
};

// Throws OptionError unless all are at least 0.
void require_sizes(const char* layer, std::initializer_list<NamedSize> sizes);
// Throws OptionError unless 0 <= probability < 1.
void require_probability(const char* layer, double probability);

// The seed of a layer's call: layers that are given one seed do not drop the same.
std::uint64_t seed_of(const Mode& mode, std::uint64_t stream);

// The options of attend for a layer with this dropout. Throws OptionError where they say what is the layer's.
AttendOptions with_layer(const char* layer, const AttendOptions& options, double dropout, const Mode& mode,
                         std::uint64_t stream);

}  // namespace qkv::nn
