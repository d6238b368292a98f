// ops/table.h: every op of qkv/ops.h, once for each thing that it can do. The generic suites walk this table; the rule
// rules.ops names an op that has no row.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <qkv/ops.h>

namespace qkv::test {

using Inputs = std::vector<Variable>;
using Shapes = std::vector<Shape>;

struct OpRow {
  std::string op;       // its name in the header
  std::string variant;  // what this row is about; may be empty
  std::function<Variable(const Inputs&)> call;
  Shapes shapes;                             // of the inputs that are differentiated: small
  std::vector<Shapes> empty = {};            // the same without elements, in one way or another
  Shapes large = {};                         // large enough for several threads
  std::function<double(double)> input = {};  // makes an input's element of a normal number; keeps off kinks
  double roundings = 8;  // how far float32 may be off, in roundings of the largest number of a result
};

inline void PrintTo(const OpRow& row, std::ostream* out) { *out << row.op << " " << row.variant; }

const std::vector<OpRow>& op_table();

// The inputs of a row: parameters with normal numbers, or what `input` makes of them.
Inputs make_inputs(const OpRow& row, const Shapes& shapes, Dtype dtype, std::uint64_t seed = 1);

}  // namespace qkv::test
