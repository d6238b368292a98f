// attention/resolved_mask.cpp: checks the parts of a mask and brings each to the form the loop asks for.
#include "attention/resolved_mask.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <qkv/error.h>

#include "base/message.h"
#include "tensor/broadcast.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

// Offsets and windows are added to one another; beyond this, far outside any number of keys, all mean the same.
constexpr std::int64_t far = std::int64_t{1} << 60;

// Checks one part after another; what several parts share (the alignment) is kept until all have been seen.
struct Resolver {
  const PairExtents& extents;
  const char* operation;
  std::optional<Alignment> alignment;  // the one that was named
  const char* needs_alignment = nullptr;

  std::string pairs() const { return Shape{extents.B, extents.H, extents.Tq, extents.Tk}.text(); }

  void require_dtype(const View& view, bool ok, const char* part, const char* wanted) const {
    if (!view) throw ShapeError(message(operation, ": ", part, " was given no array"));
    if (!ok) throw DtypeError(message(operation, ": ", part, " must be ", wanted, ", not ", name_of(view.dtype())));
  }

  // Right-aligned broadcasting over the four extents.
  View broadcast(const View& view, const Shape& to, const char* part) const {
    bool fits = view.rank() <= 4;
    for (int axis = 0; fits && axis < view.rank(); ++axis) {
      fits = view.extent(axis) == 1 || view.extent(axis) == to[4 - view.rank() + axis];
    }
    if (!fits) {
      throw ShapeError(message(operation, ": ", part, " of shape ", view.shape().text(), " does not broadcast over ",
                               to.text(), " = [B, H, Tq, Tk]"));
    }
    return broadcast_to(view, to);
  }
  View broadcast(const View& view, const char* part) const {
    return broadcast(view, Shape{extents.B, extents.H, extents.Tq, extents.Tk}, part);
  }

  void name(const Alignment& part, const char* what) {
    needs_alignment = what;
    if (part.kind == Alignment::Kind::unnamed) return;
    if (part.kind == Alignment::Kind::offsets) {
      require_dtype(part.offsets, is_integer(part.offsets.dtype()), "offset", "int32 or int64");
      if (part.offsets.rank() != 1 || part.offsets.extent(0) != extents.B) {
        throw ShapeError(
            message(operation, ": offset of shape ", part.offsets.shape().text(), " must be [B] with B = ", extents.B));
      }
    }
    const bool same = !alignment || (alignment->kind == part.kind && alignment->offset == part.offset &&
                                     alignment->offsets.data() == part.offsets.data());
    if (!same) {
      throw OptionError(
          message(operation, ": two parts of the mask name different alignments; a query has one position"));
    }
    alignment = part;
  }

  View checked_lengths(const View& lengths) const {
    require_dtype(lengths, is_integer(lengths.dtype()), "lengths", "int32 or int64");
    const bool rank1 = lengths.rank() == 1 && lengths.extent(0) == extents.B;
    const bool rank2 = lengths.rank() == 2 && lengths.extent(0) == extents.B && lengths.extent(1) == extents.Tq;
    if (!rank1 && !rank2) {
      throw ShapeError(message(operation, ": lengths of shape ", lengths.shape().text(),
                               " must be [B] or [B, Tq] with B = ", extents.B, " and Tq = ", extents.Tq));
    }
    const std::int64_t columns = rank2 ? extents.Tq : 1;
    for (std::int64_t b = 0; b < extents.B; ++b) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t length = integer_at(lengths, b * lengths.stride(0) + i * (rank2 ? lengths.stride(1) : 0));
        if (length < 0 || length > extents.Tk) {
          throw ShapeError(
              message(operation, ": length ", length, " of sequence ", b, " is outside 0..Tk = ", extents.Tk));
        }
      }
    }
    return lengths;
  }

  void add_slopes(const View& slopes, std::vector<double>& sum) const {
    require_dtype(slopes, is_floating(slopes.dtype()), "alibi slopes", "floating");
    if (slopes.rank() != 1 || slopes.extent(0) != extents.H) {
      throw ShapeError(
          message(operation, ": alibi slopes of shape ", slopes.shape().text(), " must be [H] with H = ", extents.H));
    }
    sum.resize(static_cast<std::size_t>(extents.H), 0.0);
    for (std::int64_t h = 0; h < extents.H; ++h) {
      sum[static_cast<std::size_t>(h)] += floating_at(slopes, h * slopes.stride(0));
    }
  }

  ResolvedMask::Cells checked_cells(const mask_part::BlockMask& part) const {
    require_dtype(part.keep, part.keep.dtype() == Dtype::boolean, "block mask", "boolean");
    if (part.queries < 1 || part.keys < 1) {
      throw OptionError(
          message(operation, ": cells of the block mask must be at least 1 x 1, not ", part.queries, " x ", part.keys));
    }
    const auto cells = [](std::int64_t extent, std::int64_t size) {
      return extent / size + (extent % size != 0 ? 1 : 0);
    };
    const Shape to{extents.B, extents.H, cells(extents.Tq, part.queries), cells(extents.Tk, part.keys)};
    const bool exact = part.keep.rank() >= 2 && part.keep.extent(part.keep.rank() - 2) == to[2] &&
                       part.keep.extent(part.keep.rank() - 1) == to[3];
    if (!exact) {
      throw ShapeError(message(operation, ": block mask of shape ", part.keep.shape().text(), " must end in [", to[2],
                               ", ", to[3], "], cells of ", part.queries, " queries x ", part.keys, " keys over ",
                               pairs()));
    }
    return {broadcast(part.keep, to, "block mask"), part.queries, part.keys};
  }

  std::vector<std::int64_t> offsets(const std::vector<View>& lengths) const {
    if (needs_alignment == nullptr) return {};
    if (!alignment) {
      if (extents.Tq == extents.Tk) return {};
      throw OptionError(message(operation, ": ", needs_alignment, " with Tq = ", extents.Tq, " and Tk = ", extents.Tk,
                                " needs an alignment: name top_left, bottom_right or an offset"));
    }
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(extents.B), 0);
    for (std::int64_t b = 0; b < extents.B; ++b) {
      std::int64_t& offset = offsets[static_cast<std::size_t>(b)];
      switch (alignment->kind) {
        case Alignment::Kind::bottom_right: {
          std::int64_t end = extents.Tk;
          for (const View& view : lengths) {
            if (view.rank() == 1) end = std::min(end, integer_at(view, b * view.stride(0)));
          }
          offset = end - extents.Tq;
          break;
        }
        case Alignment::Kind::offset:
          offset = alignment->offset;
          break;
        case Alignment::Kind::offsets:
          offset = integer_at(alignment->offsets, b * alignment->offsets.stride(0));
          break;
        default:
          break;
      }
      offset = std::clamp(offset, -far, far);
    }
    return offsets;
  }
};

template <class... Cases>
struct Visit : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Visit(Cases...) -> Visit<Cases...>;  // clang before 17 needs to be told

}  // namespace

ResolvedMask::ResolvedMask(const Mask& mask, const PairExtents& extents, const char* operation) : keys_(extents.Tk) {
  Resolver resolver{extents, operation, {}, nullptr};
  const auto add_pairs = [&](Dense::Kind kind, const View& pairs) {
    dense_.push_back({kind, pairs});
    pairs_vary_by_head_ |= pairs.stride(1) != 0 && extents.H > 1;
  };
  const auto add_bool = [&](Dense::Kind kind, const View& pairs, const char* part) {
    resolver.require_dtype(pairs, pairs.dtype() == Dtype::boolean, part, "boolean");
    add_pairs(kind, resolver.broadcast(pairs, part));
  };
  const Visit visit{
      [&](const mask_part::Lengths& part) { lengths_.push_back(resolver.checked_lengths(part.lengths)); },
      [&](const mask_part::Causal& part) {
        causal_ = true;
        resolver.name(part.alignment, "causal");
      },
      [&](const mask_part::Window& part) {
        windows_.push_back({std::min(part.left, far), std::min(part.right, far), {}});
        resolver.name(part.alignment, "window");
      },
      [&](const mask_part::Keep& part) { add_bool(Dense::Kind::keep, part.keep, "keep"); },
      [&](const mask_part::Drop& part) { add_bool(Dense::Kind::drop, part.drop, "drop"); },
      [&](const mask_part::KeepKeys& part) {
        resolver.require_dtype(part.keep, part.keep.dtype() == Dtype::boolean, "keep_keys", "boolean");
        if (part.keep.rank() != 2 || part.keep.extent(0) != extents.B || part.keep.extent(1) != extents.Tk) {
          throw ShapeError(message(operation, ": keep_keys of shape ", part.keep.shape().text(),
                                   " must be [B, Tk] with B = ", extents.B, " and Tk = ", extents.Tk));
        }
        add_pairs(Dense::Kind::keep,
                  View(part.keep.data(), Dtype::boolean, Shape{extents.B, extents.H, extents.Tq, extents.Tk},
                       Strides{part.keep.stride(0), 0, 0, part.keep.stride(1)}));
      },
      [&](const mask_part::Bias& part) {
        resolver.require_dtype(part.bias, is_floating(part.bias.dtype()), "bias", "floating");
        add_pairs(Dense::Kind::bias, resolver.broadcast(part.bias, "bias"));
      },
      [&](const mask_part::Alibi& part) {
        resolver.add_slopes(part.slopes, slopes_);
        resolver.name(part.alignment, "alibi");
      },
      [&](const mask_part::BlockMask& part) {
        cells_.push_back(resolver.checked_cells(part));
        pairs_vary_by_head_ |= cells_.back().keep.stride(1) != 0 && extents.H > 1;
      },
      [&](const mask_part::KeepBy& part) {
        keep_by_.push_back(part);
        pairs_vary_by_head_ |= extents.H > 1;
      },
      [&](const mask_part::EditBy& part) { edit_by_.push_back(part); },
  };
  for (const Mask::Part& part : mask.parts()) std::visit(visit, part);
  offsets_ = resolver.offsets(lengths_);
}

KeyBand ResolvedMask::windows() const {
  constexpr std::int64_t unlimited = 2 * far;  // beyond any position, too
  KeyBand band{0, unlimited, causal_ ? 0 : unlimited, keys_};
  for (const mask_part::Window& window : windows_) {
    if (window.left >= 0) band.left = std::min(band.left, window.left);
    if (window.right >= 0) band.right = std::min(band.right, window.right);
  }
  return band;
}

bool ResolvedMask::queries_have_lengths() const {
  return std::ranges::any_of(lengths_, [](const View& view) { return view.rank() == 2; });
}

KeyBand ResolvedMask::band(std::int64_t batch) const {
  KeyBand band = windows();
  band.offset = position(batch, 0);
  for (const View& view : lengths_) {
    if (view.rank() == 1) band.keys = std::min(band.keys, integer_at(view, batch * view.stride(0)));
  }
  return band;
}

KeyRange ResolvedMask::range(std::int64_t batch, std::int64_t query) const {
  KeyRange range = band(batch).at(query);
  for (const View& view : lengths_) {
    if (view.rank() == 1) continue;
    range.last = std::min(range.last, integer_at(view, batch * view.stride(0) + query * view.stride(1)));
  }
  return range;
}

}  // namespace qkv
