// support/expect_right.cpp: attend gives what the reference gives, as far as it can be computed.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "reference/attend.h"
#include "reference/elements.h"
#include "support/close.h"
#include "support/magnitude.h"
#include "support/order.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {

namespace {

Shape with_last(const Shape& shape, std::int64_t extent) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents.back() = extent;
  return Shape(extents);
}

Shape without_last(const Shape& shape) {
  const std::vector<std::int64_t> extents(shape.begin(), shape.end() - 1);
  return Shape(extents);
}

// [.., rows, columns] instead of [.., Tq, D].
Shape with_last_two(const Shape& shape, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents[extents.size() - 2] = rows;
  extents.back() = columns;
  return Shape(extents);
}

// What is compared and how exactly.
class Comparison {
 public:
  Comparison(const Attended& got, const View& q, const View& k, const View& v, const AttendOptions& options)
      : got_(got),
        options_(options),
        exact_(reference::attend<double>(q, k, v, options)),
        plain_(reference::attend<float>(q, k, v, options)),
        computed_(q.dtype() == Dtype::float64 ? Dtype::float64 : Dtype::float32),
        shape_(q.shape()),
        Tq_(q.extent(q.rank() - 2)),
        Tk_(k.extent(k.rank() - 2)),
        Dv_(v.shape().back()) {
    // Under softmax a score far below the log-sum-exp weighs nothing, however large it is.
    const bool all_scores_count = options.weigh.kind != Weigh::Kind::softmax;
    score_ = (1 + score_magnitude(q, k, options) + largest_finite(exact_.scores)) / options.temperature +
             largest_finite(all_scores_count ? exact_.weighed : exact_.lse);
    pairs_ = pair_magnitudes(q, k, options);
    value_ = largest_magnitude(v);
    doubt_ = 32 * (computed_ == Dtype::float64 ? 0x1p-53 : 0x1p-24) *
             (score_ + largest_finite(pairs_) / options.temperature);
    const bool is_by_score =
        options.want_top > 0 || options.weigh.kind == Weigh::Kind::hard || options.weigh.kind == Weigh::Kind::top_k;
    if (is_by_score) order_.emplace(q, k, options.score, exact_.weighed, doubt_);
    find_what_is_decided();
    find_magnitudes();
  }

  void run() {
    compare(got_.out, true, with_last(shape_, Dv_), options_.out_dtype, exact_.out, plain_.out, out_, "out");
    compare(got_.lse, options_.want_lse, without_last(shape_), computed_, exact_.lse, plain_.lse, lse_, "lse");
    compare(got_.weights, options_.want_weights, with_last(shape_, Tk_), computed_, exact_.weights, plain_.weights,
            weight_, "weights");
    compare(got_.scores, options_.want_scores != ScoreStage::none, with_last(shape_, Tk_), computed_, exact_.scores,
            plain_.scores, score_ * options_.temperature + largest_finite(pairs_), "scores");
    compare(got_.entropy, options_.want_entropy, without_last(shape_), computed_, exact_.entropy, plain_.entropy,
            entropy_, "entropy");
    compare(got_.effective, options_.want_effective, without_last(shape_), computed_, exact_.effective,
            plain_.effective, entropy_ * largest_finite(exact_.effective), "effective");
    compare(got_.top_weights, options_.want_top > 0, with_last(shape_, options_.want_top), computed_,
            exact_.top_weights, plain_.top_weights, weight_, "top_weights");
    compare_row_weights();
    compare_mass();
    compare_top_indices();
    compare_partial();
  }

 private:
  // Rows whose answer cannot be known from rounded scores are not compared: those where the cut of `hard` or `top_k`
  // lies between scores that are too close, and those where positive and negative scores cancel in the sum of
  // `normalize` so that its sign is in doubt.
  void find_what_is_decided() {
    const auto keys = static_cast<std::size_t>(Tk_);
    const std::size_t rows = exact_.lse.size();
    decided_.assign(rows, true);
    for (std::size_t row = 0; row < rows; ++row) {
      const double* scores = exact_.weighed.data() + row * keys;
      if (options_.weigh.kind == Weigh::Kind::hard) {
        decided_[row] = order_->is_clear(row, 1);
        for (std::size_t j = 0; options_.weigh.minimum && j < keys; ++j) {
          if (std::abs(scores[j] - *options_.weigh.minimum) < doubt_) decided_[row] = false;
        }
      }
      if (options_.weigh.kind == Weigh::Kind::top_k) decided_[row] = order_->is_clear(row, options_.weigh.k);
      if (options_.weigh.kind == Weigh::Kind::normalize && !options_.score.is_kernel()) {
        double sum = 0, sizes = 0;
        for (std::size_t j = 0; j < keys; ++j) {
          if (std::isinf(scores[j])) continue;
          sum += scores[j];
          sizes += std::abs(scores[j]);
        }
        // NaN is decided; 0 out of nothing is.
        if (sizes > 30 * std::abs(sum)) {
          decided_[row] = false;
        } else if (sizes > 0) {
          cancelled_ = std::max(cancelled_, sizes / std::abs(sum));
          smallest_sum_ = std::min(smallest_sum_, std::abs(sum));
        }
      }
    }
  }

  void find_magnitudes() {
    const auto keys = static_cast<std::size_t>(Tk_);
    double heaviest = 1, row_error = score_, largest_error = 0;
    for (std::size_t row = 0; row < exact_.lse.size(); ++row) {
      double weight = 0, error = 0;
      for (std::size_t n = row * keys; n < (row + 1) * keys; ++n) {
        const double here = std::abs(exact_.weights[n]) * (score_ + pairs_[n] / options_.temperature);
        weight += std::abs(exact_.weights[n]);
        error += here;
        if (decided_[row] && std::isfinite(here)) largest_error = std::max(largest_error, here);
      }
      if (!decided_[row] || !std::isfinite(weight)) continue;
      heaviest = std::max(heaviest, weight);
      row_error = std::max(row_error, error);
    }
    // A weight that is e to the power of its score is wrong by its own size times the score's error, and with all of
    // its row by the error of the sum.
    lse_ = row_error;
    weight_ = largest_error + row_error;
    out_ = row_error * value_;
    if (!options_.score.is_kernel() && options_.weigh.kind == Weigh::Kind::raw) {
      weight_ = score_;
      out_ = (score_ * spread(Tk_) + heaviest) * value_;
    }
    if (!options_.score.is_kernel() && options_.weigh.kind == Weigh::Kind::normalize) {
      const double relative = std::min(cancelled_ * score_, score_ * spread(Tk_) / smallest_sum_) + cancelled_;
      lse_ = relative + largest_finite(exact_.lse);
      weight_ = relative * heaviest;
      out_ = relative * heaviest * value_;
    }
    entropy_ = weight_ * (1 + std::log(1 + static_cast<double>(Tk_)));
  }

  // Independent errors of n numbers add up like the square root of n.
  static double spread(std::int64_t n) { return std::sqrt(std::max<double>(1, static_cast<double>(n))); }

  void compare(const Tensor& got, bool wanted, const Shape& shape, std::optional<Dtype> dtype,
               const std::vector<double>& exact, const std::vector<float>& plain, double magnitude, const char* name) {
    ASSERT_EQ(static_cast<bool>(got), wanted) << name;
    if (!wanted) return;
    EXPECT_EQ(got.shape(), shape) << name;
    if (dtype) {
      EXPECT_EQ(got.dtype(), *dtype) << name;
    }
    EXPECT_TRUE(is_close(settled(got, exact), {settled(exact), settled(plain), magnitude})) << "in " << name;
  }

  // Rows that are not decided become 0 on all sides.
  template <class T>
  std::vector<T> settled(std::vector<T> all) const {
    const std::size_t width = decided_.empty() ? 0 : all.size() / decided_.size();
    for (std::size_t row = 0; row < decided_.size(); ++row) {
      for (std::size_t n = 0; !decided_[row] && n < width; ++n) all[row * width + n] = 0;
    }
    return all;
  }
  Tensor settled(const Tensor& got, const std::vector<double>& exact) const {
    Tensor copy = got.clone();
    const std::size_t width = decided_.empty() ? 0 : exact.size() / decided_.size();
    for (std::size_t row = 0; row < decided_.size(); ++row) {
      for (std::size_t n = 0; !decided_[row] && n < width; ++n) {
        set_element(copy.view(), static_cast<std::int64_t>(row * width + n), 0);
      }
    }
    return copy;
  }

  bool all_are_decided() const { return std::find(decided_.begin(), decided_.end(), false) == decided_.end(); }

  void compare_row_weights() {
    ASSERT_EQ(static_cast<bool>(got_.row_weights), static_cast<bool>(options_.want_rows));
    if (!options_.want_rows) return;
    EXPECT_EQ(got_.row_weights.shape(), with_last_two(shape_, options_.want_rows.extent(0), Tk_));
    EXPECT_EQ(got_.row_weights.dtype(), computed_);
    if (!all_are_decided()) return;
    EXPECT_TRUE(is_close(got_.row_weights, {exact_.row_weights, plain_.row_weights, weight_})) << "in row_weights";
  }

  void compare_mass() {
    ASSERT_EQ(static_cast<bool>(got_.mass), options_.want_mass);
    if (!options_.want_mass) return;
    EXPECT_EQ(got_.mass.shape(), without_last(with_last_two(shape_, Tk_, 1)));
    EXPECT_EQ(got_.mass.dtype(), computed_);
    if (!all_are_decided()) return;
    const double magnitude = spread(Tq_) * weight_ + largest_finite(exact_.mass);
    EXPECT_TRUE(is_close(got_.mass, {exact_.mass, plain_.mass, magnitude})) << "in mass";
  }

  // The right places, or places with scores that cannot be told from those of the right ones.
  void compare_top_indices() {
    ASSERT_EQ(static_cast<bool>(got_.top_indices), options_.want_top > 0);
    if (options_.want_top == 0) return;
    EXPECT_EQ(got_.top_indices.shape(), with_last(shape_, options_.want_top));
    const std::vector<std::int64_t> got = reference::elements<std::int64_t>(got_.top_indices);
    ASSERT_EQ(got.size(), exact_.top_indices.size());
    const auto width = static_cast<std::size_t>(options_.want_top);
    for (std::size_t row = 0; row < decided_.size(); ++row) {
      const std::string fault = order_->fault(row, std::span(got).subspan(row * width, width),
                                              std::span(exact_.top_indices).subspan(row * width, width));
      ASSERT_TRUE(fault.empty() || !decided_[row]) << "in top_indices: " << fault;
    }
  }

  void compare_partial() {
    const bool has_state = options_.want_partial && options_.weigh.kind != Weigh::Kind::raw;
    const bool is_hard = options_.weigh.kind == Weigh::Kind::hard;
    const double magnitude = options_.weigh.kind == Weigh::Kind::normalize && !options_.score.is_kernel()
                                 ? score_ * spread(Tk_) + largest_finite(exact_.state)
                                 : lse_;
    compare(got_.state, has_state, without_last(shape_), computed_, exact_.state, plain_.state, magnitude, "state");
    EXPECT_EQ(got_.state_kind, expected_state());
    ASSERT_EQ(static_cast<bool>(got_.index), options_.want_partial && is_hard);
    if (!options_.want_partial || !is_hard) return;
    EXPECT_EQ(got_.index.shape(), without_last(shape_));
    const std::vector<std::int64_t> got = reference::elements<std::int64_t>(got_.index);
    ASSERT_EQ(got.size(), exact_.index.size());
    for (std::size_t row = 0; row < got.size(); ++row) {
      if (decided_[row]) {
        ASSERT_EQ(got[row], exact_.index[row]) << "in the index of row " << row;
      }
    }
  }

  PartialState expected_state() const {
    if (!options_.want_partial) return PartialState::none;
    switch (options_.weigh.kind) {
      case Weigh::Kind::softmax:
        return PartialState::log_sum;
      case Weigh::Kind::normalize:
        return options_.score.is_kernel() ? PartialState::log_sum : PartialState::sum;
      case Weigh::Kind::uniform:
        return PartialState::count;
      case Weigh::Kind::hard:
        return PartialState::best;
      case Weigh::Kind::raw:
      case Weigh::Kind::top_k:
        break;
    }
    return PartialState::answer;
  }

  const Attended& got_;
  const AttendOptions& options_;
  const reference::Attended<double> exact_;
  const reference::Attended<float> plain_;
  const Dtype computed_;
  const Shape shape_;  // of the queries
  const std::int64_t Tq_, Tk_, Dv_;
  double score_ = 1, value_ = 1;                         // what is rounded on the way
  double cancelled_ = 1, smallest_sum_ = HUGE_VAL;       // of the scores that normalize divides
  double out_ = 1, lse_ = 1, weight_ = 1, entropy_ = 1;  // and what becomes of it
  std::vector<double> pairs_;                            // what comes on top of score_, [B, H, Tq, Tk]
  double doubt_ = 0;                                     // how far computed scores may be from exact ones
  std::optional<Order> order_;                           // where something goes by it
  std::vector<bool> decided_;                            // [B, H, Tq]
};

}  // namespace

void expect_right(const Attended& got, const View& q, const View& k, const View& v, const AttendOptions& options) {
  EXPECT_EQ(got.out.dtype(), options.out_dtype.value_or(q.dtype()));
  Comparison(got, q, k, v, options).run();
}

void expect_right(const View& q, const View& k, const View& v, const AttendOptions& options) {
  expect_right(attend(q, k, v, options), q, k, v, options);
}

void expect_right(const Problem& problem) { expect_right(problem.q(), problem.k(), problem.v(), problem.options()); }

void expect_right(const Case& c) {
  SCOPED_TRACE(c.text());
  expect_right(Problem(c));
}

}  // namespace qkv::test
