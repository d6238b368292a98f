// nn/parameters.h: lists of named parameters.
#pragma once

#include <initializer_list>
#include <string>

#include <qkv/nn.h>

namespace qkv::nn {

struct NamedVariable {
  const char* name;
  const Variable& variable;
};

// Those that are there, in this order.
Parameters listed(const std::string& prefix, std::initializer_list<NamedVariable> variables);

}  // namespace qkv::nn
