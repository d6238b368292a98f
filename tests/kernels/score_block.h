// kernels/score_block.h: blocks of scores as the kernels fill them, between pages that must not be touched.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "support/isas.h"
#include "support/pages.h"
#include "support/random.h"

namespace qkv::test {

// An array at the end of its page: whatever reads or writes behind it crashes. An array of whole vectors is aligned.
// Pages are kept for the next array: asking the system for them takes longer than most tests.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T value = T(0))
      : page_count_(count * sizeof(T) / Pages::size() + 1), count_(count) {
    auto& spare = spare_pages()[page_count_];
    if (spare.empty()) spare.push_back(std::make_unique<Pages>(page_count_));
    pages_ = std::move(spare.back());
    spare.pop_back();
    data_ = reinterpret_cast<T*>(pages_->page(page_count_)) - count;
    std::fill_n(data_, count, value);
  }
  ~Guarded() { spare_pages()[page_count_].push_back(std::move(pages_)); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }
  T& operator[](int i) const { return data_[i]; }
  std::vector<T> copy() const { return {data_, data_ + count_}; }

 private:
  static std::map<std::size_t, std::vector<std::unique_ptr<Pages>>>& spare_pages() {
    static std::map<std::size_t, std::vector<std::unique_ptr<Pages>>> spare;
    return spare;
  }
  std::size_t page_count_, count_;
  std::unique_ptr<Pages> pages_;
  T* data_;
};

// One of the ways in which a block is computed.
struct Form {
  bool decode;
  int lanes;
  std::string name() const { return (decode ? "decode, lanes " : "panel, lanes ") + std::to_string(lanes); }
};

// All of the current instruction set.
template <class T>
std::vector<Form> panel_forms() {
  const auto& kernels = kernels::panel_kernels<T>(current_isa());
  std::vector<Form> forms;
  for (int vectors = 1; vectors <= kernels.max_vectors; ++vectors) forms.push_back({false, vectors * kernels.vector});
  return forms;
}
inline std::vector<Form> decode_forms() { return {{true, 1}, {true, 2}, {true, 4}, {true, 8}}; }
template <class T>
std::vector<Form> all_forms() {
  auto forms = panel_forms<T>();
  for (const Form& form : decode_forms()) forms.push_back(form);
  return forms;
}

// What is scored. Every row and key has `depth` elements, one after the other.
template <class T>
struct Scoring {
  int lanes, keys, depth;
  std::vector<T> q, k;
  std::vector<T> hidden;   // [depth]
  std::vector<T> per_row;  // [lanes]
  T offset = 0;
  kernels::DistanceKernel kernel = kernels::DistanceKernel::gaussian;
  T unit = 1;

  T& query(int r, int e) { return q[static_cast<std::size_t>(r * depth + e)]; }
  T& key(int j, int e) { return k[static_cast<std::size_t>(j * depth + e)]; }
  T query(int r, int e) const { return q[static_cast<std::size_t>(r * depth + e)]; }
  T key(int j, int e) const { return k[static_cast<std::size_t>(j * depth + e)]; }
};

// Elements are what `element` makes of a normal number.
template <class T, class Element>
Scoring<T> random_scoring(int lanes, int keys, int depth, std::uint64_t seed, Element element) {
  Random random(seed);
  Scoring<T> s{lanes, keys, depth, {}, {}, {}, {}};
  for (int i = 0; i < lanes * depth; ++i) s.q.push_back(static_cast<T>(element(random.normal())));
  for (int i = 0; i < keys * depth; ++i) s.k.push_back(static_cast<T>(element(random.normal())));
  for (int i = 0; i < depth; ++i) s.hidden.push_back(static_cast<T>(random.normal()));
  for (int i = 0; i < lanes; ++i) s.per_row.push_back(static_cast<T>(1 + random.uniform()));
  for (const T w : s.hidden) s.offset += w;
  return s;
}

template <class T>
using ScoreOf = void (*kernels::ScoreKernels<T>::*)(const kernels::ScoreArgs<T>&);

// The scores [keys][lanes] of keys first <= j < last; the others keep `untouched`.
template <class T>
struct Scores {
  int lanes;
  std::vector<T> all;
  std::vector<T> row_max;  // panels only
  T at(int r, int j) const { return all[static_cast<std::size_t>(j * lanes + r)]; }
};
template <class T>
constexpr T untouched = T(12345);

template <class T>
Scores<T> score(const Form& form, ScoreOf<T> which, const Scoring<T>& s, int first, int last,
                T highest = -std::numeric_limits<T>::infinity()) {
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const int vector = kernels::panel_kernels<T>(current_isa()).vector;
  const int padded = (s.depth + vector - 1) / vector * vector;
  Guarded<T> queries(size(form.lanes * (form.decode ? padded : s.depth)));
  for (int r = 0; r < form.lanes; ++r) {
    for (int e = 0; e < s.depth; ++e) queries[form.decode ? r * padded + e : e * form.lanes + r] = s.query(r, e);
  }
  const int stride = s.depth + 3;  // NaN between the rows, and nothing behind the last one
  Guarded<T> keys(size(s.keys == 0 ? 0 : (s.keys - 1) * stride + s.depth), std::numeric_limits<T>::quiet_NaN());
  for (int j = 0; j < s.keys; ++j) {
    for (int e = 0; e < s.depth; ++e) keys[j * stride + e] = s.key(j, e);
  }
  Guarded<T> hidden(size(s.depth));
  for (int e = 0; e < s.depth; ++e) hidden[e] = s.hidden[size(e)];
  Guarded<T> per_row(size(std::max(form.lanes, vector)));
  for (int i = 0; i < std::max(form.lanes, vector); ++i) per_row[i] = s.per_row[size(i % form.lanes)];
  const int room =
      form.decode ? (s.keys + kernels::decode_pad - 1) / kernels::decode_pad * kernels::decode_pad : s.keys;
  Guarded<T> scores(size(room * form.lanes), untouched<T>);
  Guarded<T> row_max(size(form.lanes), highest);

  kernels::ScoreArgs<T> args{queries.data(), keys.data(),   stride,
                             s.depth,        form.lanes,    first,
                             last,           scores.data(), form.decode ? nullptr : row_max.data()};
  args.hidden = hidden.data();
  args.offset = s.offset;
  args.kernel = s.kernel;
  args.per_row = per_row.data();
  args.unit = s.unit;
  const auto& table =
      form.decode ? kernels::decode_score_kernels<T>(current_isa()) : kernels::panel_score_kernels<T>(current_isa());
  (table.*which)(args);

  for (int i = 0; i < room * form.lanes; ++i) {
    if (i < first * form.lanes || i >= last * form.lanes) {
      EXPECT_EQ(scores[i], untouched<T>) << "written outside of " << first << " to " << last;
    }
  }
  return {form.lanes, scores.copy(), row_max.copy()};
}
template <class T>
Scores<T> score(const Form& form, ScoreOf<T> which, const Scoring<T>& s) {
  return score(form, which, s, 0, s.keys);
}

// On both sides of every vector and of the tiles that are made of them.
inline const std::vector<int> depths = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 65};
struct Run {
  int first, last;
};
inline const std::vector<Run> runs = {{0, 0}, {0, 1},  {0, 2},  {1, 4},  {0, 5},  {3, 9},  {0, 7},
                                      {0, 8}, {5, 14}, {0, 11}, {0, 13}, {1, 17}, {0, 21}, {7, 33}};

// Calls check(scores, scoring, r, j) for every score of every form, depth and run of keys.
template <class T, class Element, class Check>
void for_each_score(ScoreOf<T> which, Element element, const Check& check) {
  for (const Form& form : all_forms<T>()) {
    for (const int depth : depths) {
      const auto s = random_scoring<T>(form.lanes, 33, depth, static_cast<std::uint64_t>(depth) + 1, element);
      for (const auto [first, last] : runs) {
        SCOPED_TRACE(form.name() + ", depth " + std::to_string(depth) + ", keys " + std::to_string(first) + " to " +
                     std::to_string(last));
        const auto scores = score(form, which, s, first, last);
        for (int j = first; j < last; ++j) {
          for (int r = 0; r < form.lanes; ++r) check(scores, s, r, j);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

template <class T>
bool same(T a, T b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

// A row's scores do not depend on the rows that share its panel or pass, nor on the keys that share its run.
template <class T, class Element>
void expect_same_bits_in_any_company(ScoreOf<T> which, Element element,
                                     kernels::DistanceKernel kernel = kernels::DistanceKernel::gaussian, T unit = 1) {
  for (const auto& forms : {panel_forms<T>(), decode_forms()}) {
    const int lanes = forms.back().lanes, narrow = forms.front().lanes, keys = 300;
    for (const int depth : {3, 16, 41}) {
      auto s = random_scoring<T>(lanes, keys, depth, 7, element);
      s.kernel = kernel;
      s.unit = unit;
      const auto all = score(forms.back(), which, s);
      for (const Form& form : forms) {
        SCOPED_TRACE(form.name() + ", depth " + std::to_string(depth));
        for (int row = 0; row < lanes; row += std::max(narrow, lanes / 2)) {
          auto part = s;  // the rows from `row` on, in front
          std::rotate(part.q.begin(), part.q.begin() + row * depth, part.q.end());
          std::rotate(part.per_row.begin(), part.per_row.begin() + row, part.per_row.end());
          for (const auto [first, last] : {Run{0, keys}, Run{0, 1}, Run{37, 44}, Run{50, 61}}) {
            const auto some = score(form, which, part, first, last);
            for (int j = first; j < last; ++j) {
              for (int r = 0; r < form.lanes; ++r) {
                ASSERT_TRUE(same(some.at(r, j), all.at((row + r) % lanes, j))) << "row " << row + r << ", key " << j;
              }
            }
          }
        }
      }
    }
  }
}

// One NaN in a query makes its row NaN, one in a key makes its column NaN, and nothing else changes.
template <class T, class Element>
void expect_nan_comes_through(ScoreOf<T> which, Element element,
                              kernels::DistanceKernel kernel = kernels::DistanceKernel::gaussian, T unit = 1) {
  for (const Form& form : all_forms<T>()) {
    SCOPED_TRACE(form.name());
    constexpr int keys = 13, depth = 19;
    auto s = random_scoring<T>(form.lanes, keys, depth, 3, element);
    s.kernel = kernel;
    s.unit = unit;
    const auto clean = score(form, which, s);
    for (int e = 0; e < depth; ++e) {
      auto poisoned = s;
      const int row = e % form.lanes, key = e % keys;
      poisoned.query(row, e) = std::numeric_limits<T>::quiet_NaN();
      const auto by_query = score(form, which, poisoned);
      poisoned = s;
      poisoned.key(key, e) = -std::numeric_limits<T>::quiet_NaN();
      const auto by_key = score(form, which, poisoned);
      for (int j = 0; j < keys; ++j) {
        for (int r = 0; r < form.lanes; ++r) {
          ASSERT_TRUE(r == row ? std::isnan(by_query.at(r, j)) : same(by_query.at(r, j), clean.at(r, j)));
          ASSERT_TRUE(j == key ? std::isnan(by_key.at(r, j)) : same(by_key.at(r, j), clean.at(r, j)));
        }
      }
    }
  }
}

// A panel's row_max becomes the largest of what it was and the row's scores.
template <class T, class Element>
void expect_row_max_is_raised(ScoreOf<T> which, Element element, T unit = 1) {
  for (const Form& form : panel_forms<T>()) {
    for (const T before : {-std::numeric_limits<T>::infinity(), T(-1), T(1000)}) {
      for (const auto [first, last] : runs) {
        auto s = random_scoring<T>(form.lanes, 33, 5, 11, element);
        s.unit = unit;
        const auto scores = score(form, which, s, first, last, before);
        for (int r = 0; r < form.lanes; ++r) {
          T highest = before;
          for (int j = first; j < last; ++j) highest = std::max(highest, scores.at(r, j));
          ASSERT_EQ(scores.row_max[static_cast<std::size_t>(r)], highest) << form.name();
        }
      }
    }
  }
}

}  // namespace qkv::test
