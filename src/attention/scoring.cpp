// attention/scoring.cpp: normalises, centres or projects queries, and finds heads that need the exact way.
#include "attention/scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "attention/form_rows.h"
#include "attention/load.h"
#include "base/numbers.h"
#include "base/parallel.h"

namespace qkv {
namespace {

// A gaussian's terms may be so large that their rounding reaches the score by this much (SEMANTICS.md, S16).
constexpr double tolerated_rounding = 1e-4;

// Rows of queries that are one piece of work.
constexpr std::int64_t rows_at_once = 256;

template <class T>
class QueryFormer {
 public:
  QueryFormer(const Problem& problem, const KeyForm& form, Scoring& scoring)
      : p_(problem), form_(form), scoring_(scoring), width_(scoring.usual.width) {
    scoring_.queries = FormTensor(Shape{p_.B, p_.H, p_.Tq, width_}, p_.compute);
    queries_ = scoring_.queries.view().as<T>();
  }

  // Largest, per (batch, head): what KeyForm::largest is for keys.
  void gaussian() {
    for_each_rows([&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last) {
      const T factor = inverse_square(h);
      double largest = 0;
      for_each_row(b, h, first, last, [&](const T* row, T* to) {
        const std::int64_t D = p_.D;
        const T square = centre_row(row, b, h, factor, to);
        largest = std::isfinite(square) ? std::max(largest, static_cast<double>(square)) : infinity<double>;
        to[D] = factor;
        to[D + 1] = square * factor * T(-0.5);
      });
      return largest;
    });
    for (std::int64_t b = 0; b < p_.B; ++b) {
      for (std::int64_t h = 0; h < p_.H; ++h) {
        const double largest =
            std::max(largest_query(b, h), largest_key(b, h)) * static_cast<double>(inverse_square(h));
        if (static_cast<double>(std::numeric_limits<T>::epsilon()) * largest > tolerated_rounding) need_exact(b, h);
      }
    }
    // Decode compares the heads of a key head together.
    share_by_group();
  }

  void cosine() {
    for_each_rows([&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last) {
      for_each_row(b, h, first, last, [&](const T* row, T* to) { normalize_row(row, p_.D, to); });
      return 0.0;
    });
  }

  // bilinear and additive
  void project() {
    for_each_rows([&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last) {
      const auto matrix = static_cast<std::size_t>(form_.query_matrices.size() == 1 ? 0 : h);
      T* to = row(b, h, first);
      project_rows<T>(p_.q, row_at(b, h, first), last - first, form_.query_matrices[matrix], to);
      return largest_magnitude(to, (last - first) * width_);
    });
  }

  void exponentiate_projections() {
    for (std::int64_t b = 0; b < p_.B; ++b) {
      for (std::int64_t h = 0; h < p_.H; ++h) {
        if (std::max(largest_query(b, h), largest_key(b, h)) > largest_projection) need_exact(b, h);
      }
    }
    share_by_group();
    for_each_rows([&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last) {
      if (!needs_exact(b, h)) exponentiate(row(b, h, first), (last - first) * width_, row(b, h, first));
      return 0.0;
    });
    if (!scoring_.needs_exact.empty()) recover_projections();
  }

 private:
  // Heads that need the exact way compare projections; keys that are held as exponentials are brought back.
  void recover_projections() {
    const std::int64_t heads = form_.heads;
    const View& keys = form_.shown;
    scoring_.projections = FormTensor(keys.shape(), p_.compute);
    T* to = scoring_.projections.view().as<T>();
    for (std::int64_t i = 0; i < p_.B * heads; ++i) {
      if (!needs_exact(i / heads, i % heads * (p_.H / heads))) continue;
      const bool exponentials = form_.largest[static_cast<std::size_t>(i)] <= largest_projection;
      const T* from = keys.as<T>() + i / heads * keys.stride(0) + i % heads * keys.stride(1);
      T* head_to = to + i * p_.Tk * width_;
      if (exponentials) {
        recover(from, p_.Tk * width_, head_to);
      } else {
        std::copy_n(from, p_.Tk * width_, head_to);
      }
    }
  }

  // Calls work(b, h, first, last) for pieces of all rows, on several threads; it returns the largest of something, of
  // which the largest per head is kept.
  template <class Work>
  void for_each_rows(Work work) {
    const std::int64_t pieces = (p_.Tq + rows_at_once - 1) / rows_at_once;
    std::vector<double> largest(static_cast<std::size_t>(p_.B * p_.H * pieces), 0);
    parallel_for(p_.B * p_.H * pieces, p_.threads, [&](std::int64_t i) {
      const std::int64_t head = i / pieces, first = i % pieces * rows_at_once;
      largest[static_cast<std::size_t>(i)] =
          work(head / p_.H, head % p_.H, first, std::min(first + rows_at_once, p_.Tq));
    });
    largest_.assign(static_cast<std::size_t>(p_.B * p_.H), 0);
    for (std::size_t i = 0; i < largest.size(); ++i) {
      double& of_head = largest_[i / static_cast<std::size_t>(pieces)];
      of_head = std::max(of_head, largest[i]);
    }
  }

  template <class Each>
  void for_each_row(std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last, Each each) {
    RowReader<T> reader(p_.q);
    for (std::int64_t i = first; i < last; ++i) each(reader.row(row_at(b, h, i)), row(b, h, i));
  }

  T centre_row(const T* row, std::int64_t b, std::int64_t h, T factor, T* to) const {
    const T* centre = View(form_.centres).as<T>() + (b * form_.heads + key_head(h)) * p_.D;
    return kernels::row_kernels<T>().centred(row, centre, coordinate_factors<T>(form_.parameters, h), factor,
                                             static_cast<int>(p_.D), to);
  }

  std::int64_t key_head(std::int64_t h) const { return h / (p_.H / form_.heads); }
  std::int64_t row_at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return b * p_.q.stride(0) + h * p_.q.stride(1) + i * p_.q.stride(2);
  }
  T* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return queries_ + ((b * p_.H + h) * p_.Tq + i) * width_;
  }
  // What is left of it where keys are divided by sigma.
  T inverse_square(std::int64_t h) const {
    return form_.parameters.by_coordinate ? T(1) : *of_head(form_.parameters.inverse_squares, h).template as<T>();
  }
  double largest_query(std::int64_t b, std::int64_t h) const {
    return largest_[static_cast<std::size_t>(b * p_.H + h)];
  }
  double largest_key(std::int64_t b, std::int64_t h) const {
    return form_.largest[static_cast<std::size_t>(b * form_.heads + key_head(h))];
  }

  bool needs_exact(std::int64_t b, std::int64_t h) const {
    return !scoring_.needs_exact.empty() && scoring_.needs_exact[static_cast<std::size_t>(b * p_.H + h)] != 0;
  }
  void need_exact(std::int64_t b, std::int64_t h) {
    scoring_.needs_exact.resize(static_cast<std::size_t>(p_.B * p_.H), 0);
    scoring_.needs_exact[static_cast<std::size_t>(b * p_.H + h)] = 1;
  }
  void share_by_group() {
    if (scoring_.needs_exact.empty()) return;
    for (std::int64_t first = 0; first < p_.B * p_.H; first += p_.group) {
      const auto from = scoring_.needs_exact.begin() + first;
      std::fill_n(from, p_.group, *std::max_element(from, from + p_.group));
    }
  }

  const Problem& p_;
  const KeyForm& form_;
  Scoring& scoring_;
  std::int64_t width_;
  T* queries_;
  std::vector<double> largest_;  // [B * H]
};

template <class T>
void form_queries(const Problem& p, const KeyForm& form, Scoring& scoring) {
  ScoreWay &usual = scoring.usual, &exact = scoring.exact;
  switch (p.score.kind) {
    case Score::Kind::bilinear:
      usual.width = p.Dk;
      QueryFormer<T>(p, form, scoring).project();
      break;
    case Score::Kind::cosine:
      QueryFormer<T>(p, form, scoring).cosine();
      break;
    case Score::Kind::additive: {
      usual.kind = ScoreWay::Kind::additive;
      usual.width = form.parameters.hidden_width();
      QueryFormer<T> former(p, form, scoring);
      former.project();
      former.exponentiate_projections();
      break;
    }
    case Score::Kind::gaussian:
      usual.width = p.D + 2;
      QueryFormer<T>(p, form, scoring).gaussian();
      break;
    default:
      if (p.score.is_kernel() && p.score.kind != Score::Kind::constant) usual.kind = ScoreWay::Kind::distance;
      if (p.score.kind == Score::Kind::yours) usual.kind = ScoreWay::Kind::yours;
      break;
  }
  if (scoring.queries) usual.q = scoring.queries;
  if (form.shown) {
    usual.k = form.shown;
    usual.key_group = p.H / std::max<std::int64_t>(form.heads, 1);
  }
  if (scoring.needs_exact.empty()) return;
  exact = usual;
  if (p.score.kind == Score::Kind::additive) {
    exact.kind = ScoreWay::Kind::additive_direct;
    exact.k = scoring.projections;
    return;
  }
  exact = {ScoreWay::Kind::distance, p.q, p.k, p.D, p.group, 1};
}

ScoreUse use_of(const Problem& p, FunctionRef<std::string()> shapes) {
  return {p.operation, p.Hk, p.Dk, ScoreUse::Queries{p.H, p.D}, shapes};
}

// With parameters that fit the problem.
Scoring scoring_from(const Problem& problem, std::shared_ptr<const KeyForm> form) {
  Scoring scoring;
  scoring.form = std::move(form);
  scoring.parameters = &scoring.form->parameters;
  scoring.usual = {ScoreWay::Kind::dot, problem.q, problem.k, problem.D, problem.group, problem.scale};
  if (!reads_keys(problem)) {
    scoring.usual.width = 0;  // a dot product of width 0 is 0
    return scoring;
  }
  if (problem.compute == Dtype::float64) {
    form_queries<double>(problem, *scoring.form, scoring);
  } else {
    form_queries<float>(problem, *scoring.form, scoring);
  }
  return scoring;
}

}  // namespace

bool reads_keys(const Problem& problem) {
  return problem.score.kind != Score::Kind::constant &&
         (!problem.weighing.exclusion_only || problem.want_scores != ScoreStage::none);
}

std::int64_t Scoring::exact_heads() const {
  return std::count(needs_exact.begin(), needs_exact.end(), std::uint8_t{1});
}

std::int64_t Scoring::bytes() const { return form->bytes() + queries.bytes() + projections.bytes(); }

Scoring make_scoring(const Problem& problem, std::shared_ptr<const KeyForm> form) {
  // The form was made before anybody knew the queries.
  const auto shapes = [&] { return problem.shapes(); };
  check_parameters(problem.score, problem.compute, use_of(problem, shapes));
  return scoring_from(problem, std::move(form));
}

Scoring make_scoring(const Problem& problem) {
  VisibleRuns runs;
  if (makes_keys(problem.score)) {
    const bool all = problem.want_scores == ScoreStage::scaled || problem.want_scores == ScoreStage::capped;
    runs = !reads_keys(problem) ? VisibleRuns(static_cast<std::size_t>(problem.B * problem.Hk))
           : all                ? all_visible(problem.B, problem.Hk, problem.Tk)
                                : visible_runs(problem);
  }
  const auto shapes = [&] { return problem.shapes(); };
  return scoring_from(problem,
                      std::make_shared<const KeyForm>(make_key_form(problem.k, problem.score, problem.compute, runs,
                                                                    problem.threads, use_of(problem, shapes))));
}

}  // namespace qkv
