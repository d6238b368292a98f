// reference/attend.cpp: attention as its formula says. Nothing here is clever; speed comes from plain loops over dense
// arrays. docs and tests call the stations by the same names.
#include "reference/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <variant>

#include "reference/elements.h"

namespace qkv::reference {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Rank 3 is [B, T, D] with one head, rank 2 is [T, D] with one sequence and one head.
View as_rank_4(const View& x) {
  if (x.rank() == 4) return x;
  if (x.rank() == 3) {
    return View(x.data(), x.dtype(), {x.extent(0), 1, x.extent(1), x.extent(2)},
                {x.stride(0), 0, x.stride(1), x.stride(2)});
  }
  return View(x.data(), x.dtype(), {1, 1, x.extent(0), x.extent(1)}, {0, 0, x.stride(0), x.stride(1)});
}

Extents extents_of(const View& q, const View& k, const View& v) {
  return {q.extent(0), q.extent(1), k.extent(1), q.extent(2), k.extent(2), q.extent(3), v.extent(3)};
}

double scale_of(const AttendOptions& options, std::int64_t D) {
  if (options.scale) return *options.scale;
  if (options.score.kind == Score::Kind::dot || D == 0) return 1;
  return 1 / std::sqrt(static_cast<double>(D));
}

Alignment named_alignment(const Mask& mask) {
  for (const Mask::Part& part : mask.parts()) {
    Alignment alignment;
    if (auto* causal = std::get_if<mask_part::Causal>(&part)) alignment = causal->alignment;
    if (auto* window = std::get_if<mask_part::Window>(&part)) alignment = window->alignment;
    if (auto* alibi = std::get_if<mask_part::Alibi>(&part)) alignment = alibi->alignment;
    if (alignment.kind != Alignment::Kind::unnamed) return alignment;
  }
  return {};
}

// How many keys sequence b has: the least of the lengths of rank 1, or all Tk.
double length_of(const Mask& mask, std::int64_t b, std::int64_t Tk) {
  auto length = static_cast<double>(Tk);
  for (const Mask::Part& part : mask.parts()) {
    auto* lengths = std::get_if<mask_part::Lengths>(&part);
    if (lengths == nullptr || lengths->lengths.rank() != 1) continue;
    length = std::min(length, element(lengths->lengths, b * lengths->lengths.stride(0)));
  }
  return length;
}

long double offset_of(const Mask& mask, const Extents& e, std::int64_t b) {
  const Alignment alignment = named_alignment(mask);
  switch (alignment.kind) {
    case Alignment::Kind::unnamed:
    case Alignment::Kind::top_left:
      return 0;
    case Alignment::Kind::bottom_right:
      return static_cast<long double>(length_of(mask, b, e.Tk)) - static_cast<long double>(e.Tq);
    case Alignment::Kind::offset:
      return static_cast<long double>(alignment.offset);
    case Alignment::Kind::offsets:
      return static_cast<long double>(element(alignment.offsets, b * alignment.offsets.stride(0)));
  }
  return 0;
}

// Whether one part lets query i, standing at position p, see key j.
bool lets_see(const Mask::Part& part, long double p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const auto key = static_cast<long double>(j);
  if (auto* m = std::get_if<mask_part::Lengths>(&part)) {
    const View& lengths = m->lengths;
    const std::int64_t per_query = lengths.rank() == 2 ? i * lengths.stride(1) : 0;
    return static_cast<double>(j) < element(lengths, b * lengths.stride(0) + per_query);
  }
  if (std::holds_alternative<mask_part::Causal>(part)) return key <= p;
  if (auto* m = std::get_if<mask_part::Window>(&part)) {
    return (m->left < 0 || p - static_cast<long double>(m->left) <= key) &&
           (m->right < 0 || key <= p + static_cast<long double>(m->right));
  }
  if (auto* m = std::get_if<mask_part::Keep>(&part)) return broadcast_element(m->keep, b, h, i, j) != 0;
  if (auto* m = std::get_if<mask_part::Drop>(&part)) return broadcast_element(m->drop, b, h, i, j) == 0;
  if (auto* m = std::get_if<mask_part::KeepKeys>(&part)) {
    return element(m->keep, b * m->keep.stride(0) + j * m->keep.stride(1)) != 0;
  }
  if (auto* m = std::get_if<mask_part::Bias>(&part)) return broadcast_element(m->bias, b, h, i, j) != -infinity;
  if (auto* m = std::get_if<mask_part::BlockMask>(&part)) {
    return broadcast_element(m->keep, b, h, i / m->queries, j / m->keys) != 0;
  }
  return true;  // ALiBi and edits exclude nothing; KeepBy answers for a whole row, see Attention::seen
}

}  // namespace

template <class T>
Attention<T>::Attention(const View& q_any_rank, const View& k_any_rank, const View& v_any_rank,
                        const AttendOptions& options)
    : options_(options) {
  const View q = as_rank_4(q_any_rank), k = as_rank_4(k_any_rank), v = as_rank_4(v_any_rank);
  extents_ = extents_of(q, k, v);
  scale_ = static_cast<T>(scale_of(options, extents_.D));
  q_ = elements<T>(q);
  k_transposed_ = elements<T>(k.swapped(2, 3));
  v_ = elements<T>(v);
  for (std::int64_t b = 0; b < extents_.B; ++b) offsets_.push_back(offset_of(options.mask, extents_, b));
}

template <class T>
long double Attention<T>::position(std::int64_t b, std::int64_t i) const {
  return static_cast<long double>(i) + offsets_[at(b)];
}

template <class T>
void Attention<T>::edit(std::vector<T>& scores, std::int64_t b, std::int64_t h, std::int64_t i) const {
  for (const Mask::Part& part : options_.mask.parts()) {
    auto* edit_by = std::get_if<mask_part::EditBy>(&part);
    if (edit_by == nullptr) continue;
    // The function may take only one of the two types; then this row visits the other type.
    const auto call = [&]<class U>(void (*function)(const void*, const ScoreBlock<U>&)) {
      std::vector<U> row(scores.begin(), scores.end());
      function(edit_by->function, {row.data(), 1, 1, extents_.Tk, b, h, i, 0});
      std::transform(row.begin(), row.end(), scores.begin(), [](U score) { return static_cast<T>(score); });
    };
    const bool prefers_double = std::is_same_v<T, double>;
    if (edit_by->call_double != nullptr && (prefers_double || edit_by->call_float == nullptr)) {
      call(edit_by->call_double);
    } else {
      call(edit_by->call_float);
    }
  }
}

template <class T>
T Attention<T>::added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  T sum = 0;
  for (const Mask::Part& part : options_.mask.parts()) {
    if (auto* m = std::get_if<mask_part::Bias>(&part)) {
      sum += static_cast<T>(broadcast_element(m->bias, b, h, i, j));
    }
    if (auto* m = std::get_if<mask_part::Alibi>(&part)) {
      const long double distance = std::abs(position(b, i) - static_cast<long double>(j));
      sum += -static_cast<T>(element(m->slopes, h * m->slopes.stride(0))) * static_cast<T>(distance);
    }
  }
  return sum;
}

template <class T>
std::vector<bool> Attention<T>::seen(std::int64_t b, std::int64_t h, std::int64_t i) const {
  std::vector<bool> seen(at(extents_.Tk), true);
  for (const Mask::Part& part : options_.mask.parts()) {
    if (auto* keep_by = std::get_if<mask_part::KeepBy>(&part)) {
      const auto keep = std::make_unique<bool[]>(at(extents_.Tk));
      const Kept kept = keep_by->call(keep_by->function, {keep.get(), 1, 1, extents_.Tk, b, h, i, 0});
      for (std::int64_t j = 0; j < extents_.Tk; ++j) {
        if (kept == Kept::none || (kept == Kept::some && !keep[at(j)])) seen[at(j)] = false;
      }
      continue;
    }
    for (std::int64_t j = 0; j < extents_.Tk; ++j) {
      if (!lets_see(part, position(b, i), b, h, i, j)) seen[at(j)] = false;
    }
  }
  return seen;
}

template <class T>
Row<T> Attention<T>::row(std::int64_t b, std::int64_t h, std::int64_t i) const {
  const auto [B, H, Hk, Tq, Tk, D, Dv] = extents_;
  const std::int64_t key_head = h / (H / Hk);
  const T* q = q_.data() + ((b * H + h) * Tq + i) * D;
  const T* k = k_transposed_.data() + (b * Hk + key_head) * D * Tk;
  const T* v = v_.data() + (b * Hk + key_head) * Tk * Dv;
  Row<T> row;

  // score, scale: s = q . k * scale
  row.scaled.assign(at(Tk), 0);
  for (std::int64_t d = 0; d < D; ++d) {
    for (std::int64_t j = 0; j < Tk; ++j) row.scaled[at(j)] += q[d] * k[d * Tk + j];
  }
  for (T& s : row.scaled) s *= scale_;

  // softcap: c tanh(s / c)
  row.capped = row.scaled;
  if (const T c = static_cast<T>(options_.softcap); c > 0) {
    for (T& s : row.capped) s = c * std::tanh(s / c);
  }

  // edit, + bias and ALiBi, exclusion
  row.biased = row.capped;
  edit(row.biased, b, h, i);
  const std::vector<bool> visible = seen(b, h, i);
  for (std::int64_t j = 0; j < Tk; ++j) {
    row.biased[at(j)] = visible[at(j)] ? row.biased[at(j)] + added(b, h, i, j) : static_cast<T>(-infinity);
  }
  row.empty = std::find(visible.begin(), visible.end(), true) == visible.end();

  row.weights.assign(at(Tk), 0);
  row.out.assign(at(Dv), 0);
  if (row.empty) {
    row.lse = static_cast<T>(-infinity);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    if (options_.on_empty == OnEmpty::nan) {
      row.weights.assign(at(Tk), nan);
      row.out.assign(at(Dv), nan);
    }
    if (options_.on_empty == OnEmpty::uniform) {
      row.weights.assign(at(Tk), static_cast<T>(1) / static_cast<T>(Tk));
      for (std::int64_t j = 0; j < Tk; ++j) {
        for (std::int64_t d = 0; d < Dv; ++d) row.out[at(d)] += row.weights[at(j)] * v[j * Dv + d];
      }
    }
    return row;
  }

  // softmax: w = exp(s - max) / sum; log-sum-exp = max + log(sum)
  T largest = static_cast<T>(-infinity), sum = 0;
  for (std::int64_t j = 0; j < Tk; ++j) {
    if (visible[at(j)]) largest = std::max(largest, row.biased[at(j)]);
  }
  for (std::int64_t j = 0; j < Tk; ++j) {
    if (visible[at(j)]) sum += row.weights[at(j)] = std::exp(row.biased[at(j)] - largest);
  }
  for (T& w : row.weights) w /= sum;
  row.lse = largest + std::log(sum);

  // pool: out = sum of w v over the keys that are seen; w v of the others could be 0 * NaN
  for (std::int64_t j = 0; j < Tk; ++j) {
    if (!visible[at(j)]) {
      row.weights[at(j)] = 0;
      continue;
    }
    for (std::int64_t d = 0; d < Dv; ++d) row.out[at(d)] += row.weights[at(j)] * v[j * Dv + d];
  }
  return row;
}
template class Attention<double>;
template class Attention<float>;

template <class T>
Attended<T> attend(const View& q, const View& k, const View& v, const AttendOptions& options) {
  const Attention<T> attention(q, k, v, options);
  const Extents& e = attention.extents();
  Attended<T> all;
  const auto append = [](std::vector<T>& to, const std::vector<T>& row) {
    to.insert(to.end(), row.begin(), row.end());
  };
  for (std::int64_t b = 0; b < e.B; ++b) {
    for (std::int64_t h = 0; h < e.H; ++h) {
      for (std::int64_t i = 0; i < e.Tq; ++i) {
        const Row<T> row = attention.row(b, h, i);
        append(all.out, row.out);
        all.lse.push_back(row.lse);
        append(all.weights, row.weights);
        if (options.want_scores == ScoreStage::scaled) append(all.scores, row.scaled);
        if (options.want_scores == ScoreStage::capped) append(all.scores, row.capped);
        if (options.want_scores == ScoreStage::biased) append(all.scores, row.biased);
      }
    }
  }
  return all;
}
template Attended<double> attend<double>(const View&, const View&, const View&, const AttendOptions&);
template Attended<float> attend<float>(const View&, const View&, const View&, const AttendOptions&);

}  // namespace qkv::reference
