// kernels/gather_test.cpp: the gradients of keys and values, gathered from panels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/gradient_data.h"
#include "kernels/gradients.h"

namespace qkv::test {
namespace {

template <class T>
class GatherOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(GatherOf, Types);

// No tile of any instruction set has more keys: weights so far from the panel's span are not read.
constexpr int highest_tile = 12;

struct PanelOf {
  int lanes, rows;
  int first, last;
};

// Panels as GatherArgs sees them, with NaN wherever the kernel has no business: lanes behind the last row, weights far
// from the span, columns of the last strip behind the width.
template <class T>
class Panels {
 public:
  Panels(const std::vector<PanelOf>& panels, int keys, int width) : panels_(panels), keys_(keys), width_(width) {
    for (const PanelOf& panel : panels) rows_ += panel.rows;
    strip_ = kernels::panel_kernels<T>(current_isa()).strip;
    const int strips = (width + strip_ - 1) / strip_;
    values_ = std::make_unique<Guarded<T>>(static_cast<std::size_t>(strips * rows_ * strip_), nan<T>);
    Random random(1);
    for (int r = 0; r < rows_; ++r) {
      for (int c = 0; c < width; ++c) value(r, c) = static_cast<T>(random.normal());
    }
    int row = 0;
    for (const PanelOf& panel : panels) {
      weights_.emplace_back(static_cast<std::size_t>(keys * panel.lanes), nan<T>);
      for (int j = 0; j < keys; ++j) {
        const bool inside = panel.first <= j && j < panel.last;
        const bool far = j <= panel.first - highest_tile || j >= panel.last + highest_tile - 1;
        for (int r = 0; r < panel.rows && !far; ++r) {
          weights_.back()[j * panel.lanes + r] = inside ? static_cast<T>(random.normal()) : T(0);
        }
      }
      args_.push_back(
          {weights_.back().data(), values_->data() + row * strip_, panel.lanes, panel.rows, panel.first, panel.last});
      row += panel.rows;
    }
  }

  void gather(const Fenced<T>& sums, int sum_stride) const {
    gradient_kernels<T>().gather(
        {args_.data(), static_cast<int>(args_.size()), keys_, rows_ * strip_, width_, sums.data(), sum_stride});
  }

  // The sum over panels and their rows, from `start`.
  ExactSum expected(int j, int c, T start) const {
    ExactSum sum;
    sum.add(start);
    int row = 0;
    for (std::size_t p = 0; p < panels_.size(); row += panels_[p++].rows) {
      if (j < panels_[p].first || j >= panels_[p].last) continue;
      for (int r = 0; r < panels_[p].rows; ++r) {
        sum.add(static_cast<long double>(weights_[p][j * panels_[p].lanes + r]) *
                static_cast<long double>(value(row + r, c)));
      }
    }
    return sum;
  }
  int rows() const { return rows_; }

 private:
  T& value(int r, int c) const { return (*values_)[(c / strip_ * rows_ + r) * strip_ + c % strip_]; }

  std::vector<PanelOf> panels_;
  int keys_, width_, rows_ = 0, strip_ = 0;
  std::unique_ptr<Guarded<T>> values_;  // in strips, [strips][rows][strip]
  std::deque<Guarded<T>> weights_;      // [keys][lanes] of each panel
  std::vector<kernels::GatherPanel<T>> args_;
};

// Columns between width and sum_stride stay as they are. Each term is rounded as a product and in as many sums as there
// are rows.
template <class T>
void expect_right(const std::vector<PanelOf>& panels, int keys, int vectors) {
  const int vector = kernels::panel_kernels<T>(current_isa()).vector, width = vectors * vector;
  SCOPED_TRACE(std::to_string(panels.size()) + " panels, " + std::to_string(keys) + " keys, width " +
               std::to_string(width));
  const Panels<T> of(panels, keys, width);
  const int stride = width + vector;
  const Fenced<T> sums(keys * stride);
  Random random(2);
  for (int j = 0; j < keys; ++j) {
    for (int c = 0; c < width; ++c) sums[j * stride + c] = static_cast<T>(random.normal());
  }
  const std::vector<T> before(sums.data(), sums.data() + sums.size());
  of.gather(sums, stride);
  for (int i = 0; i < sums.size(); ++i) {
    const int j = i / stride, c = i % stride;
    const T start = before[static_cast<std::size_t>(i)];
    if (c >= width || panels.empty()) {
      ASSERT_EQ(sums[i], start) << "key " << j << ", column " << c;
      continue;
    }
    const ExactSum exact = of.expected(j, c, start);
    ASSERT_LE(std::abs(sums[i] - exact.value), exact.template tolerance<T>(of.rows() + 1))
        << "key " << j << ", column " << c;
  }
}

// Every number of keys up to two of the highest tiles and one more; blocks beyond.
std::vector<int> numbers_of_keys() {
  std::vector<int> numbers = {33, 61};
  for (int keys = 0; keys <= 2 * highest_tile + 1; ++keys) numbers.push_back(keys);
  return numbers;
}

TYPED_TEST(GatherOf, OnePanelIsRightWithAnyNumberOfRowsAndColumns) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      for (int rows = 1; rows <= lanes; ++rows) {
        for (const int vectors : {1, 2, 3, 4, 5}) {
          for (const int keys : {1, 7, 17}) {
            expect_right<TypeParam>({{lanes, rows, 0, keys}}, keys, vectors);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

TYPED_TEST(GatherOf, OnePanelIsRightWithAnySpanOfKeys) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      for (const int keys : numbers_of_keys()) {
        for (int first = 0; first <= keys; first += 1 + keys / 18) {
          for (int last = first; last <= keys; last += 1 + keys / 18) {
            expect_right<TypeParam>({{lanes, std::max(lanes - 1, 1), first, last}}, keys, 3);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

// Spans as a causal mask makes them, ragged ones, and one without a key.
TYPED_TEST(GatherOf, ManyPanelsAreRight) {
  on_every_isa([] {
    const int most = gradient_kernels<TypeParam>().group_panels;
    const auto lanes = panel_lanes<TypeParam>();
    for (const int count : {0, 1, 2, 3, most}) {
      for (const int keys : numbers_of_keys()) {
        std::vector<PanelOf> causal, ragged;
        Random random(static_cast<std::uint64_t>(keys) + 1);
        for (int p = 0; p < count; ++p) {
          const int wide = lanes.back(), some = lanes[static_cast<std::size_t>(p) % lanes.size()];
          const auto first = static_cast<int>(random.below(keys + 1));
          causal.push_back({wide, p + 1 == count ? 1 : wide, 0, std::min(keys, (p + 1) * (keys + 1) / count)});
          ragged.push_back({some, 1 + static_cast<int>(random.below(some)), first,
                            p == 1 ? first : first + static_cast<int>(random.below(keys - first + 1))});
        }
        for (const int vectors : {1, 2, 4, 5, 7}) {
          expect_right<TypeParam>(causal, keys, vectors);
          expect_right<TypeParam>(ragged, keys, vectors);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
