// attention/key_form.cpp: normalises, centres or projects keys, once for all who ask.
#include "attention/key_form.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "attention/form_rows.h"
#include "attention/load.h"
#include "base/numbers.h"
#include "base/parallel.h"

namespace qkv {
namespace {

// About as many keys the centre is the mean of, evenly spread: it need not be exact, only near.
constexpr std::int64_t centre_keys = 32;

// So many of them are asked for before they are needed.
constexpr std::int64_t keys_ahead = 4;

template <class T>
class KeyFormer {
 public:
  KeyFormer(const KeyForm& form, const View& k, const View& centres, const VisibleRuns& runs, FormedKeys& to)
      : form_(form),
        k_(k),
        centres_(centres),
        runs_(runs),
        to_(to),
        group_(k.extent(1) == 0 ? 1 : form.heads / k.extent(1)) {}

  void make(int threads) {
    const std::int64_t B = k_.extent(0), D = k_.extent(3);
    const bool additive = form_.score.kind == Score::Kind::additive;
    const bool cosine = form_.score.kind == Score::Kind::cosine;
    const bool gaussian = form_.score.kind == Score::Kind::gaussian;
    const bool new_centres = gaussian && !centres_;
    const std::int64_t width = additive ? form_.parameters.hidden_width() : gaussian ? D + 2 : D;
    to_.keys = FormTensor(Shape{B, form_.heads, k_.extent(2), width}, form_.compute);
    to_.largest.assign(static_cast<std::size_t>(B * form_.heads), 0);
    if (new_centres) {
      to_.centres = Tensor(Shape{B, form_.heads, D}, form_.compute);
      centres_ = to_.centres;
    }
    parallel_for(B * form_.heads, threads, [&](std::int64_t i) {
      const std::int64_t b = i / form_.heads, h = i % form_.heads;
      clear_unseen(b, h);
      if (additive) return project(b, h);
      if (new_centres) find_centre(b, h);
      cosine ? normalize(b, h) : centre(b, h);
    });
  }

 private:
  const std::vector<KeyRange>& runs(std::int64_t b, std::int64_t h) const {
    return runs_[static_cast<std::size_t>(b * k_.extent(1) + h / group_)];
  }
  std::int64_t row_at(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return b * k_.stride(0) + h / group_ * k_.stride(1) + j * k_.stride(2);
  }
  T* keys(std::int64_t b, std::int64_t h) const {
    return to_.keys.view().as<T>() + (b * form_.heads + h) * k_.extent(2) * to_.keys.shape()[3];
  }
  std::int64_t centre_at(std::int64_t b, std::int64_t h) const { return (b * form_.heads + h) * k_.extent(3); }

  // Keys that nobody sees are zeros.
  void clear_unseen(std::int64_t b, std::int64_t h) const {
    const std::int64_t width = to_.keys.shape()[3];
    std::int64_t next = 0;
    const auto clear_until = [&](std::int64_t key) {
      std::fill(keys(b, h) + next * width, keys(b, h) + key * width, T(0));
    };
    for (const KeyRange& run : runs(b, h)) {
      clear_until(run.first);
      next = run.last;
    }
    clear_until(k_.extent(2));
  }

  // Calls each(key, row of T) for visible keys, every step-th.
  template <class Each>
  void for_each_key(std::int64_t b, std::int64_t h, std::int64_t step, Each each) const {
    RowReader<T> reader(k_);
    std::int64_t skipped = 0;  // of the keys until the next one
    for (const KeyRange& run : runs(b, h)) {
      std::int64_t j = run.first + skipped;
      for (; j < run.last; j += step) {
        // Where keys are passed over, the processor does not look ahead by itself.
        if (step > 1 && j + keys_ahead * step < run.last) ask_for_key(b, h, j + keys_ahead * step);
        each(j, reader.row(row_at(b, h, j)));
      }
      skipped = j - run.last;
    }
  }

  void ask_for_key(std::int64_t b, std::int64_t h, std::int64_t j) const {
    constexpr std::int64_t line = 64;
    const auto size = static_cast<std::int64_t>(size_of(k_.dtype()));
    const auto* row = static_cast<const std::byte*>(k_.data()) + row_at(b, h, j) * size;
    for (std::int64_t at = 0; at < k_.extent(3) * size && k_.stride(3) == 1; at += line) __builtin_prefetch(row + at);
  }

  // The mean of finite keys; keys that are not finite must not reach those that do not see them.
  void find_centre(std::int64_t b, std::int64_t h) {
    const auto D = static_cast<int>(k_.extent(3));
    const auto& kernels = kernels::row_kernels<T>();
    T* to = to_.centres.view().template as<T>() + centre_at(b, h);  // minus the sum, until all are in it
    std::int64_t visible = 0, count = 0;
    for (const KeyRange& run : runs(b, h)) visible += run.last - run.first;
    for_each_key(b, h, std::max<std::int64_t>(1, visible / centre_keys), [&](std::int64_t, const T* row) {
      if (!kernels.finite(row, D)) return;
      kernels.centred(row, to, nullptr, T(-1), D, to);
      ++count;
    });
    if (count > 0) kernels.scale(to, D, T(-1) / static_cast<T>(count), to);
  }

  void centre(std::int64_t b, std::int64_t h) {
    const std::int64_t D = k_.extent(3), width = to_.keys.shape()[3];
    const T* factors = coordinate_factors<T>(form_.parameters, h);
    const T* middle = centres_.as<T>() + centre_at(b, h);
    const auto& kernels = kernels::row_kernels<T>();
    double largest = 0;
    T* to = keys(b, h);
    for_each_key(b, h, 1, [&](std::int64_t j, const T* row) {
      const T square = kernels.centred(row, middle, factors, T(1), static_cast<int>(D), to + j * width);
      largest = std::isfinite(square) ? std::max(largest, static_cast<double>(square)) : infinity<double>;
      to[j * width + D] = square * T(-0.5);
      to[j * width + D + 1] = 1;
    });
    to_.largest[static_cast<std::size_t>(b * form_.heads + h)] = largest;
  }

  void normalize(std::int64_t b, std::int64_t h) {
    const std::int64_t D = k_.extent(3);
    T* to = keys(b, h);
    for_each_key(b, h, 1, [&](std::int64_t j, const T* row) { normalize_row(row, D, to + j * D); });
  }

  void project(std::int64_t b, std::int64_t h) {
    const std::int64_t E = form_.parameters.hidden_width();
    const PackedMatrix& weights = form_.key_matrices[form_.key_matrices.size() == 1 ? 0 : static_cast<std::size_t>(h)];
    T* to = keys(b, h);
    double largest = 0;
    for (const KeyRange& run : runs(b, h)) {
      project_rows<T>(k_, row_at(b, h, run.first), run.last - run.first, weights, to + run.first * E);
      largest = std::max(largest, largest_magnitude(to + run.first * E, (run.last - run.first) * E));
    }
    to_.largest[static_cast<std::size_t>(b * form_.heads + h)] = largest;
    if (largest > largest_projection) return;
    for (const KeyRange& run : runs(b, h)) {
      exponentiate(to + run.first * E, (run.last - run.first) * E, to + run.first * E);
    }
  }

  const KeyForm& form_;
  const View& k_;
  View centres_;
  const VisibleRuns& runs_;
  FormedKeys& to_;
  std::int64_t group_;  // heads of the form per key head
};

// One per head of a parameter, or one; `transposed` where its rows are the columns of the product.
std::vector<PackedMatrix> packed(const Tensor& parameter, bool transposed) {
  std::vector<PackedMatrix> matrices;
  for (std::int64_t h = 0; parameter && h < parameter.shape()[0]; ++h) {
    const View matrix = of_head(parameter, h);
    matrices.emplace_back(transposed ? matrix.swapped(0, 1) : matrix);
  }
  return matrices;
}

std::int64_t bytes_of(const std::vector<PackedMatrix>& matrices) {
  std::int64_t bytes = 0;
  for (const PackedMatrix& matrix : matrices) {
    bytes += matrix.panels().elements() * static_cast<std::int64_t>(size_of(matrix.dtype()));
  }
  return bytes;
}

}  // namespace

bool makes_keys(const Score& score) {
  return score.kind == Score::Kind::cosine || score.kind == Score::Kind::additive ||
         score.kind == Score::Kind::gaussian;
}

std::int64_t KeyForm::key_bytes() const {
  auto bytes = static_cast<std::int64_t>(largest.size() * sizeof(double));
  bytes += keys.bytes() + centres.elements() * static_cast<std::int64_t>(size_of(centres.dtype()));
  return bytes;
}

std::int64_t KeyForm::bytes() const {
  return key_bytes() + parameters.bytes() + bytes_of(query_matrices) + bytes_of(key_matrices);
}

FormedKeys form_keys(const KeyForm& form, const View& k, const View& centres, const VisibleRuns& runs, int threads) {
  FormedKeys to;
  if (!makes_keys(form.score)) return to;
  if (form.compute == Dtype::float64) {
    KeyFormer<double>(form, k, centres, runs, to).make(threads);
  } else {
    KeyFormer<float>(form, k, centres, runs, to).make(threads);
  }
  return to;
}

KeyForm make_key_form(const View& k, const Score& score, Dtype compute, const VisibleRuns& runs, int threads,
                      const ScoreUse& use) {
  KeyForm form;
  form.score = score;
  form.compute = compute;
  form.parameters = resolve_parameters(score, compute, use);
  const ScoreParameters& parameters = form.parameters;
  const bool bilinear = score.kind == Score::Kind::bilinear;
  form.query_matrices = packed(bilinear ? parameters.matrix : parameters.query_weights, !bilinear);
  form.key_matrices = packed(parameters.key_weights, true);
  const Tensor& keys_by = score.kind == Score::Kind::additive ? parameters.key_weights : parameters.inverse_bandwidths;
  const bool by_head = makes_keys(score) && keys_by && keys_by.shape()[0] != 1 &&
                       (score.kind == Score::Kind::additive || parameters.by_coordinate);
  form.heads = by_head ? parameters.heads : k.extent(1);
  static_cast<FormedKeys&>(form) = form_keys(form, k, {}, runs, threads);
  form.shown = form.keys;
  return form;
}

}  // namespace qkv
