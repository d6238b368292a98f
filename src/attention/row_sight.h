// attention/row_sight.h: which keys a single row sees. Slow: for rows that turn out to be special.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"
#include "base/function_ref.h"

namespace qkv {

// Uses the workspace's block of scores.
template <class T>
class RowSight {
 public:
  RowSight(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  // Calls each(key) for keys that the row sees, rising, until it answers false.
  void for_each_seen(const RowOf& row, FunctionRef<bool(std::int64_t key)> each) const;
  std::int64_t first_seen(const RowOf& row) const;  // -1: none
  bool sees_any(const RowOf& row) const { return first_seen(row) >= 0; }

 private:
  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
};

}  // namespace qkv
