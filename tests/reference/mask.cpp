// reference/mask.cpp: which keys a query may see, what is added to its scores, and your edits of them.
#include "reference/mask.h"

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
  return true;  // ALiBi and edits exclude nothing; KeepBy answers for a whole row, see Sight::seen
}

}  // namespace

template <class T>
Sight<T>::Sight(const Mask& mask, const Extents& extents) : mask_(mask), extents_(extents) {
  for (std::int64_t b = 0; b < extents.B; ++b) offsets_.push_back(offset_of(mask, extents, b));
}

template <class T>
long double Sight<T>::position(std::int64_t b, std::int64_t i) const {
  return static_cast<long double>(i) + offsets_[at(b)];
}

template <class T>
void Sight<T>::edit(std::vector<T>& scores, std::int64_t b, std::int64_t h, std::int64_t i) const {
  for (const Mask::Part& part : mask_.parts()) {
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
T Sight<T>::added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  T sum = 0;
  for (const Mask::Part& part : mask_.parts()) {
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
std::vector<bool> Sight<T>::seen(std::int64_t b, std::int64_t h, std::int64_t i) const {
  std::vector<bool> seen(at(extents_.Tk), true);
  for (const Mask::Part& part : mask_.parts()) {
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

template class Sight<double>;
template class Sight<float>;

}  // namespace qkv::reference
