// reference/attend.cpp: attention as its formula says. Nothing here is clever; speed comes from plain loops over dense
// arrays. docs and tests call the stations by the same names.
#include "reference/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "reference/elements.h"
#include "reference/weigh.h"

namespace qkv::reference {

namespace {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Extents extents_of(const View& q, const View& k, const View& v) {
  return {q.extent(0), q.extent(1), k.extent(1), q.extent(2), k.extent(2), q.extent(3), v.extent(3)};
}

double scale_of(const AttendOptions& options, std::int64_t D) {
  if (options.scale) return *options.scale;
  if (options.score.kind != Score::Kind::scaled_dot || D == 0) return 1;
  return 1 / std::sqrt(static_cast<double>(D));
}

// Under these weighings a key that a compact kernel gives 0 counts as excluded.
bool excludes_zeros(const Weigh& weigh) {
  return weigh.kind == Weigh::Kind::softmax || weigh.kind == Weigh::Kind::normalize || weigh.kind == Weigh::Kind::top_k;
}

// -sum p ln p, with 0 ln 0 = 0
template <class T>
T entropy_of(const std::vector<T>& weights) {
  T entropy = 0;
  for (const T p : weights) entropy -= p == 0 ? 0 : p * std::log(p);
  return entropy;
}

template <class T>
T state_of(const Weighed<T>& row, const AttendOptions& options) {
  switch (options.weigh.kind) {
    case Weigh::Kind::softmax:
      return row.empty ? -infinity<T> : row.lse;
    case Weigh::Kind::normalize:
      return !options.score.is_kernel() ? row.sum : row.empty ? -infinity<T> : row.lse;
    case Weigh::Kind::uniform:
      return static_cast<T>(row.count);
    case Weigh::Kind::hard:
      return row.empty ? -infinity<T> : row.best;
    case Weigh::Kind::raw:
    case Weigh::Kind::top_k:
      break;
  }
  return 0;
}

// The largest scores of a row, and what they weigh; nothing of an empty row, and NaN where the row has one.
template <class T>
void take_top(Row<T>& row, const std::vector<bool>& seen, std::int64_t count) {
  const std::vector<T>& scores = row.weighed;
  row.top_weights.assign(at(count), 0);
  row.top_indices.assign(at(count), -1);
  if (row.empty) return;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (!seen[j] || !(std::isnan(scores[j]) || std::isnan(row.weights[j]))) continue;
    row.top_weights.assign(at(count), nan<T>);
    return;
  }
  const std::vector<std::int64_t> order = by_falling_score(scores, seen);
  for (std::size_t place = 0; place < std::min(order.size(), at(count)); ++place) {
    row.top_indices[place] = order[place];
    row.top_weights[place] = row.weights[at(order[place])];
  }
}

}  // namespace

template <class T>
Attention<T>::Attention(const View& q, const View& k, const View& v, const AttendOptions& options)
    : options_(options),
      extents_(extents_of(as_rank_4(q), as_rank_4(k), as_rank_4(v))),
      scale_(static_cast<T>(scale_of(options, extents_.D))),
      scores_(options.score, as_rank_4(q), as_rank_4(k)),
      sight_(options.mask, extents_),
      v_(elements<T>(as_rank_4(v))) {}

template <class T>
T Attention<T>::drop(T weight, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  if (!options_.training || options_.dropout == 0) return weight;
  const View& ids = options_.sequence_ids;
  const auto sequence = ids ? static_cast<std::int64_t>(element(ids, b * ids.stride(0))) : b;
  const std::uint32_t bits = random_bits(random_key(*options_.seed, sequence, h, i), j);
  const bool dropped = bits < std::round(options_.dropout * 0x1p32);
  return dropped ? 0 : weight / static_cast<T>(1 - options_.dropout);
}

template <class T>
Row<T> Attention<T>::row(std::int64_t b, std::int64_t h, std::int64_t i) const {
  const std::int64_t Tk = extents_.Tk, Dv = extents_.Dv;
  const std::int64_t key_head = h / (extents_.H / extents_.Hk);
  const T* v = v_.data() + (b * extents_.Hk + key_head) * Tk * Dv;
  Row<T> row;

  // score, scale
  row.scaled = scores_.row(b, h, i);
  for (T& s : row.scaled) s *= scale_;

  // softcap: c tanh(s / c)
  row.capped = row.scaled;
  if (const T c = static_cast<T>(options_.softcap); c > 0) {
    for (T& s : row.capped) s = c * std::tanh(s / c);
  }

  // edit, + bias and ALiBi, exclusion
  row.biased = row.capped;
  sight_.edit(row.biased, b, h, i);
  std::vector<bool> seen = sight_.seen(b, h, i);
  for (std::int64_t j = 0; j < Tk; ++j) {
    const bool is_zero = is_compact(options_.score) && row.scaled[at(j)] == -infinity<T>;
    if (is_zero && excludes_zeros(options_.weigh)) seen[at(j)] = false;
    row.biased[at(j)] = seen[at(j)] ? row.biased[at(j)] + sight_.added(b, h, i, j) : -infinity<T>;
  }

  // / temperature, weigh
  row.weighed = row.biased;
  for (T& s : row.weighed) s /= static_cast<T>(options_.temperature);
  const Weighed<T> weighed = weigh(row.weighed, seen, options_.weigh, options_.score.is_kernel());
  row.weights = weighed.weights;
  row.empty = weighed.empty;
  row.state = state_of(weighed, options_);
  row.index = row.empty ? -1 : weighed.index;
  row.lse = row.empty ? -infinity<T> : weighed.lse;
  if ((options_.want_entropy || options_.want_effective) && !row.empty) {
    row.entropy = entropy_of(row.weights);
    row.effective = std::exp(row.entropy);
  }
  if (options_.want_top > 0) take_top(row, seen, options_.want_top);

  // dropout, pool: out = sum of w v over the keys that are seen; w v of the others could be 0 * NaN
  row.out.assign(at(Dv), 0);
  const auto pool = [&](std::int64_t j, T weight) {
    for (std::int64_t d = 0; d < Dv; ++d) row.out[at(d)] += weight * v[j * Dv + d];
  };
  for (std::int64_t j = 0; j < Tk && !row.empty; ++j) {
    if (weighed.pooled[at(j)]) pool(j, drop(row.weights[at(j)], b, h, i, j));
  }
  if (!row.empty) return row;

  row.weights.assign(at(Tk), 0);
  if (options_.on_empty == OnEmpty::nan) {
    row.weights.assign(at(Tk), nan<T>);
    row.out.assign(at(Dv), nan<T>);
  }
  if (options_.on_empty == OnEmpty::uniform) {
    row.weights.assign(at(Tk), static_cast<T>(1) / static_cast<T>(Tk));
    for (std::int64_t j = 0; j < Tk; ++j) pool(j, row.weights[at(j)]);
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
  const auto append = [](auto& to, const auto& row) { to.insert(to.end(), row.begin(), row.end()); };
  std::vector<std::int64_t> wanted;
  if (options.want_rows) wanted = elements<std::int64_t>(options.want_rows);
  for (std::int64_t b = 0; b < e.B; ++b) {
    for (std::int64_t h = 0; h < e.H; ++h) {
      std::vector<T> mass(at(e.Tk), 0);
      for (std::int64_t i = 0; i < e.Tq; ++i) {
        const Row<T> row = attention.row(b, h, i);
        append(all.out, row.out);
        append(all.weighed, row.weighed);
        append(all.weights, row.weights);
        append(all.top_weights, row.top_weights);
        append(all.top_indices, row.top_indices);
        all.lse.push_back(row.lse);
        all.entropy.push_back(row.entropy);
        all.effective.push_back(row.effective);
        all.state.push_back(row.state);
        all.index.push_back(row.index);
        for (std::int64_t j = 0; j < e.Tk; ++j) mass[at(j)] += row.weights[at(j)];
        if (options.want_scores == ScoreStage::scaled) append(all.scores, row.scaled);
        if (options.want_scores == ScoreStage::capped) append(all.scores, row.capped);
        if (options.want_scores == ScoreStage::biased) append(all.scores, row.biased);
      }
      append(all.mass, mass);
      for (const std::int64_t i : wanted) append(all.row_weights, attention.row(b, h, i).weights);
    }
  }
  return all;
}
template Attended<double> attend<double>(const View&, const View&, const View&, const AttendOptions&);
template Attended<float> attend<float>(const View&, const View&, const View&, const AttendOptions&);

}  // namespace qkv::reference
