// nn/parameters.cpp: lists of named parameters.
#include "nn/parameters.h"

namespace qkv::nn {

Parameters listed(const std::string& prefix, std::initializer_list<NamedVariable> variables) {
  Parameters list;
  for (const NamedVariable& named : variables) {
    if (named.variable) list.push_back({prefix + named.name, named.variable});
  }
  return list;
}

Parameters join(std::initializer_list<Parameters> lists) {
  Parameters all;
  for (const Parameters& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace qkv::nn
