// support/covering.cpp: few cases that contain every pair of choices.
#include "support/covering.h"

#include <cstddef>

namespace qkv::test {

namespace {

// Which pairs of choices no row has yet. A pair (f, x), (g, y) is looked up in both orders.
class Uncovered {
 public:
  explicit Uncovered(const std::vector<int>& levels) : levels_(levels) {
    int choices = 0;
    for (const int count : levels) {
      first_.push_back(choices);
      choices += count;
    }
    choices_ = static_cast<std::size_t>(choices);
    missing_.assign(choices_ * choices_, false);
    for (std::size_t f = 0; f < levels.size(); ++f)
      for (std::size_t g = f + 1; g < levels.size(); ++g)
        for (int x = 0; x < levels[f]; ++x)
          for (int y = 0; y < levels[g]; ++y) {
            set(f, x, g, y, true);
            ++count_;
          }
  }

  std::size_t count() const { return count_; }
  bool has(std::size_t f, int x, std::size_t g, int y) const { return missing_[place(f, x, g, y)]; }
  void cover(std::size_t f, int x, std::size_t g, int y) {
    if (!has(f, x, g, y)) return;
    set(f, x, g, y, false);
    --count_;
  }

  // Some pair that is missing, of the first factors that have one.
  void first_missing(std::size_t& f, int& x, std::size_t& g, int& y) const {
    for (f = 0; f < levels_.size(); ++f)
      for (g = f + 1; g < levels_.size(); ++g)
        for (x = 0; x < levels_[f]; ++x)
          for (y = 0; y < levels_[g]; ++y)
            if (has(f, x, g, y)) return;
  }

 private:
  std::size_t place(std::size_t f, int x, std::size_t g, int y) const {
    return static_cast<std::size_t>(first_[f] + x) * choices_ + static_cast<std::size_t>(first_[g] + y);
  }
  void set(std::size_t f, int x, std::size_t g, int y, bool missing) {
    missing_[place(f, x, g, y)] = missing_[place(g, y, f, x)] = missing;
  }

  std::vector<int> levels_, first_;
  std::vector<bool> missing_;
  std::size_t choices_ = 0, count_ = 0;
};

}  // namespace

std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels) {
  constexpr int open = -1;
  Uncovered uncovered(levels);
  std::vector<std::vector<int>> rows;
  while (uncovered.count() > 0) {
    // A row starts with a pair that is missing, so every row covers something new.
    std::vector<int> row(levels.size(), open);
    std::size_t f = 0, g = 0;
    int x = 0, y = 0;
    uncovered.first_missing(f, x, g, y);
    row[f] = x;
    row[g] = y;
    // Each other factor takes the choice that completes most missing pairs with what is chosen; among equals the rows
    // take turns, so that choices with nothing left to cover still vary.
    for (std::size_t factor = 0; factor < levels.size(); ++factor) {
      if (row[factor] != open) continue;
      int best = 0, best_gain = -1;
      for (int turn = 0; turn < levels[factor]; ++turn) {
        const int choice = (turn + static_cast<int>(rows.size())) % levels[factor];
        int gain = 0;
        for (std::size_t other = 0; other < levels.size(); ++other) {
          if (row[other] != open && uncovered.has(factor, choice, other, row[other])) ++gain;
        }
        if (gain > best_gain) best = choice, best_gain = gain;
      }
      row[factor] = best;
    }
    for (std::size_t a = 0; a < levels.size(); ++a)
      for (std::size_t b = a + 1; b < levels.size(); ++b) uncovered.cover(a, row[a], b, row[b]);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace qkv::test
