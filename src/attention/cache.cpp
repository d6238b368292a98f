// attention/cache.cpp: keys and values that grow.
#include <qkv/cache.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <qkv/error.h>

#include "attention/ask.h"
#include "attention/form_rows.h"
#include "attention/key_form.h"
#include "attention/load.h"
#include "attention/visible.h"
#include "base/message.h"
#include "base/parallel.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

// Rows of one width for B sequences of so many heads, with room for `capacity` each.
struct Rows {
  Tensor rows;  // [B, heads, capacity, width]

  std::int64_t heads() const { return rows.shape()[1]; }
  std::int64_t capacity() const { return rows.shape()[2]; }
  std::int64_t width() const { return rows.shape()[3]; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(width()) * size_of(rows.dtype()); }
  std::byte* row(std::int64_t b, std::int64_t h, std::int64_t token) {
    const std::int64_t at = (b * heads() + h) * capacity() + token;
    return static_cast<std::byte*>(rows.view().data()) + static_cast<std::size_t>(at) * row_bytes();
  }
  View first(std::int64_t tokens) const { return View(rows).slice(2, 0, tokens); }
};

template <class T>
void store(const View& from, std::int64_t b, std::int64_t h, std::int64_t count, Rows& to, std::int64_t token) {
  RowReader<T> reader(from);
  const MutableView target(to.rows.view().data(), to.rows.dtype(), Shape{to.rows.elements()});
  for (std::int64_t t = 0; t < count; ++t) {
    const T* row = reader.row(b * from.stride(0) + h * from.stride(1) + t * from.stride(2));
    store_row(row, to.width(), T(1), target, ((b * to.heads() + h) * to.capacity() + token + t) * to.width(), 1);
  }
}

// Tokens of one head from `from`, as they are or converted.
void append_rows(const View& from, std::int64_t b, std::int64_t h, std::int64_t count, Rows& to, std::int64_t token) {
  const bool dense = from.stride(3) == 1 && (from.stride(2) == to.width() || count == 1);
  if (count == 0 || to.width() == 0) return;
  if (from.dtype() == to.rows.dtype() && dense) {
    const std::int64_t at = b * from.stride(0) + h * from.stride(1);
    const auto* source =
        static_cast<const std::byte*>(from.data()) + at * static_cast<std::int64_t>(size_of(from.dtype()));
    std::memcpy(to.row(b, h, token), source, static_cast<std::size_t>(count) * to.row_bytes());
  } else if (to.rows.dtype() == Dtype::float64) {
    store<double>(from, b, h, count, to, token);
  } else {
    store<float>(from, b, h, count, to, token);
  }
}

}  // namespace

struct Cache::Parts {
  CacheOptions options;
  std::int64_t B, Hk, D, Dv;
  std::shared_ptr<KeyForm> form;  // its keys are those below
  // What is asked; made ready for the score. Where the score may also have to look at keys as they were given, `given`
  // has those.
  Rows keys, given, values;
  Tensor lengths, evicted;  // [B]

  bool keeps_given() const { return options.score.kind == Score::Kind::gaussian; }

  std::int64_t& length(std::int64_t b) { return lengths.values<std::int64_t>()[static_cast<std::size_t>(b)]; }
  std::int64_t& gone(std::int64_t b) { return evicted.values<std::int64_t>()[static_cast<std::size_t>(b)]; }
  std::int64_t longest() const {
    const auto all = lengths.values<std::int64_t>();
    return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  }

  Rows empty_rows(const Rows& like, std::int64_t capacity) const {
    return {Tensor(Shape{B, like.heads(), capacity, like.width()}, like.rows.dtype())};
  }
  std::vector<Rows*> all_rows() {
    if (keeps_given()) return {&keys, &given, &values};
    return {&keys, &values};
  }

  // Makes room for `counts` more tokens. What no later query sees is thrown away when room is short; there is always
  // as much room again as tokens, so that moving them is rare.
  void make_room(const std::vector<std::int64_t>& counts) {
    std::int64_t needed = 0, kept_most = 0;
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t kept = options.left < 0 ? length(b) : std::min(length(b), options.left);
      needed = std::max(needed, length(b) + counts[static_cast<std::size_t>(b)]);
      kept_most = std::max(kept_most, kept + counts[static_cast<std::size_t>(b)]);
    }
    if (needed <= values.capacity()) return;
    const bool grows = kept_most > values.capacity() / 2;
    const std::int64_t capacity = grows ? std::max<std::int64_t>(2 * kept_most, 16) : values.capacity();
    std::vector<Rows> larger;
    for (Rows* rows : all_rows()) {
      if (grows) larger.push_back(empty_rows(*rows, capacity));
    }
    std::size_t which = 0;
    for (Rows* rows : all_rows()) {
      Rows& to = grows ? larger[which++] : *rows;
      for (std::int64_t b = 0; b < B; ++b) {
        const std::int64_t kept = options.left < 0 ? length(b) : std::min(length(b), options.left);
        for (std::int64_t h = 0; kept > 0 && rows->width() > 0 && h < rows->heads(); ++h) {
          std::memmove(to.row(b, h, 0), rows->row(b, h, length(b) - kept),
                       static_cast<std::size_t>(kept) * rows->row_bytes());
        }
      }
      if (grows) std::swap(*rows, to);
    }
    for (std::int64_t b = 0; options.left >= 0 && b < B; ++b) {
      const std::int64_t kept = std::min(length(b), options.left);
      gone(b) += length(b) - kept;
      length(b) = kept;
    }
  }

  // Additive's projections are exponentials as long as all of a head's are small enough.
  template <class T>
  void agree_on_exponentials(FormedKeys& more, const std::vector<std::int64_t>& counts) {
    const std::int64_t E = keys.width(), heads = keys.heads();
    for (std::int64_t i = 0; i < B * heads; ++i) {
      double& held = form->largest[static_cast<std::size_t>(i)];
      const double added = more.largest[static_cast<std::size_t>(i)];
      const bool held_small = held <= largest_projection, added_small = added <= largest_projection;
      if (held_small && !added_small) {
        T* rows = reinterpret_cast<T*>(keys.row(i / heads, i % heads, 0));
        recover(rows, length(i / heads) * E, rows);
      }
      if (!held_small && added_small) {
        T* rows = more.keys.view().as<T>() + i * more.keys.shape()[2] * E;
        recover(rows, counts[static_cast<std::size_t>(i / heads)] * E, rows);
      }
      held = std::max(held, added);
    }
  }

  void append(const View& k, const View& v, const std::vector<std::int64_t>& counts, const char* operation) {
    FormedKeys more;
    if (makes_keys(options.score)) {
      VisibleRuns runs;
      for (std::int64_t i = 0; i < B * Hk; ++i) {
        const std::int64_t count = counts[static_cast<std::size_t>(i / Hk)];
        runs.emplace_back(count > 0 ? 1 : 0, KeyRange{0, count});
      }
      // The centre is that of the first keys.
      const View centres = longest() == 0 ? View() : View(form->centres);
      more = form_keys(*form, k, centres, runs, resolve_threads(0, operation));
    }
    make_room(counts);
    if (makes_keys(options.score)) {
      if (more.centres) form->centres = std::move(more.centres);
      if (options.score.kind == Score::Kind::additive) {
        form->compute == Dtype::float64 ? agree_on_exponentials<double>(more, counts)
                                        : agree_on_exponentials<float>(more, counts);
      } else {
        for (std::size_t i = 0; i < form->largest.size(); ++i) {
          form->largest[i] = std::max(form->largest[i], more.largest[i]);
        }
      }
    }
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t count = counts[static_cast<std::size_t>(b)], at = length(b);
      for (std::int64_t h = 0; h < keys.heads(); ++h)
        append_rows(makes_keys(options.score) ? View(more.keys) : k, b, h, count, keys, at);
      for (std::int64_t h = 0; h < Hk; ++h) append_rows(v, b, h, count, values, at);
      for (std::int64_t h = 0; keeps_given() && h < Hk; ++h) append_rows(k, b, h, count, given, at);
      length(b) += count;
    }
    if (makes_keys(options.score)) form->shown = keys.first(longest());
  }

  // The keys as attend is given them: where the score has its own, only their shape counts.
  View shown_keys() const {
    if (keeps_given()) return given.first(longest());
    if (!makes_keys(options.score)) return keys.first(longest());
    return View(View(keys.rows).data(), keys.rows.dtype(), Shape{B, Hk, longest(), D}, Strides{});
  }
};

Cache::Cache(std::int64_t B, std::int64_t Hk, std::int64_t D, std::int64_t Dv, const CacheOptions& options)
    : parts_(std::make_unique<Parts>()) {
  constexpr const char* operation = "Cache";
  const auto sizes = [&] { return message("B = ", B, ", Hk = ", Hk, ", D = ", D, ", Dv = ", Dv); };
  if (B < 0 || Hk < 0 || D < 0 || Dv < 0)
    throw ShapeError(message(operation, ": sizes must not be negative: ", sizes()));
  if (options.capacity < 0) {
    throw OptionError(message(operation, ": capacity must not be negative, but is ", options.capacity));
  }
  if (!is_floating(options.dtype)) {
    throw DtypeError(message(operation, ": keys and values are floating, not ", name_of(options.dtype)));
  }
  Parts& p = *parts_;
  p.options = options;
  p.B = B;
  p.Hk = Hk;
  p.D = D;
  p.Dv = Dv;
  const Dtype compute = options.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  const View none(nullptr, compute, Shape{B, Hk, 0, D});
  p.form = std::make_shared<KeyForm>(
      make_key_form(none, options.score, compute, all_visible(B, Hk, 0), 1, {operation, Hk, D, {}, sizes}));
  if (makes_keys(options.score) && options.dtype != compute) {
    throw DtypeError(message(operation, ": ", name_of(options.score.kind), " makes keys ready as ", name_of(compute),
                             "; storage as ", name_of(options.dtype), " is for scores that use keys as they are"));
  }
  const std::int64_t heads = makes_keys(p.options.score) ? p.form->heads : Hk;
  const std::int64_t width = makes_keys(p.options.score) ? p.form->keys.shape()[3] : D;
  p.keys.rows = Tensor(Shape{B, heads, options.capacity, width}, options.dtype);
  p.values.rows = Tensor(Shape{B, Hk, options.capacity, Dv}, options.dtype);
  if (p.keeps_given()) p.given.rows = Tensor(Shape{B, Hk, options.capacity, D}, options.dtype);
  p.lengths = Tensor(Shape{B}, Dtype::int64);
  p.evicted = Tensor(Shape{B}, Dtype::int64);
  if (makes_keys(p.options.score)) p.form->shown = p.keys.first(0);
}

Cache::~Cache() = default;
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;

void Cache::append(View k, View v, View counts) {
  constexpr const char* operation = "Cache::append";
  Parts& p = *parts_;
  const auto shapes = [&] {
    return message("k ", k.shape().text(), ", v ", v.shape().text(), ", and the cache has B = ", p.B, ", Hk = ", p.Hk,
                   ", D = ", p.D, ", Dv = ", p.Dv);
  };
  const auto refuse = [&](const char* rule) { throw ShapeError(message(operation, ": ", rule, ": ", shapes())); };
  if (k.rank() < 2 || k.rank() > 4 || v.rank() != k.rank()) refuse("k and v must have the same rank, 2, 3 or 4");
  const View keys = rank4(k), values = rank4(v);
  if (keys.extent(0) != p.B || keys.extent(1) != p.Hk || keys.extent(3) != p.D) refuse("k must be [B, Hk, T, D]");
  const std::int64_t T = keys.extent(2);
  if (values.extent(0) != p.B || values.extent(1) != p.Hk || values.extent(2) != T || values.extent(3) != p.Dv) {
    refuse("v must be [B, Hk, T, Dv]");
  }
  if (compute_dtype({{"k", k.dtype()}, {"v", v.dtype()}}, operation) != p.form->compute) {
    throw DtypeError(message(operation, ": k is ", name_of(k.dtype()), ", v ", name_of(v.dtype()),
                             ", and the cache computes in ", name_of(p.form->compute)));
  }
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(p.B), T);
  if (counts) {
    if (!is_integer(counts.dtype())) {
      throw DtypeError(message(operation, ": counts must be int32 or int64, not ", name_of(counts.dtype())));
    }
    if (counts.rank() != 1 || counts.extent(0) != p.B) {
      throw ShapeError(message(operation, ": counts of shape ", counts.shape().text(), " must be [B] with B = ", p.B,
                               ": ", shapes()));
    }
    for (std::int64_t b = 0; b < p.B; ++b) {
      const std::int64_t count = integer_at(counts, b * counts.stride(0));
      if (count < 0 || count > T) {
        throw ShapeError(
            message(operation, ": count ", count, " of sequence ", b, " is outside 0..T = ", T, ": ", shapes()));
      }
      tokens[static_cast<std::size_t>(b)] = count;
    }
  }
  p.append(keys, values, tokens, operation);
}

void Cache::clear() {
  Parts& p = *parts_;
  std::ranges::fill(p.lengths.values<std::int64_t>(), 0);
  std::ranges::fill(p.evicted.values<std::int64_t>(), 0);
  std::fill(p.form->largest.begin(), p.form->largest.end(), 0.0);
  if (makes_keys(p.options.score)) p.form->shown = p.keys.first(0);
}

View Cache::lengths() const { return parts_->lengths; }
View Cache::evicted() const { return parts_->evicted; }
View Cache::keys() const { return parts_->keys.first(parts_->longest()); }
View Cache::values() const { return parts_->values.first(parts_->longest()); }
std::int64_t Cache::capacity() const { return parts_->values.capacity(); }
const CacheOptions& Cache::options() const { return parts_->options; }

namespace {

// [B, 1, T, D] as [B, T, D], and so on, where the queries have a lower rank.
View with_rank(const View& view, int rank) {
  if (rank == 3 && view.extent(1) == 1) {
    return View(view.data(), view.dtype(), Shape{view.extent(0), view.extent(2), view.extent(3)},
                Strides{view.stride(0), view.stride(2), view.stride(3)});
  }
  if (rank == 2 && view.extent(0) == 1 && view.extent(1) == 1) {
    return View(view.data(), view.dtype(), Shape{view.extent(2), view.extent(3)},
                Strides{view.stride(2), view.stride(3)});
  }
  return view;
}

Problem check_ask(const View& q, const Cache& cache, const AttendOptions& options, const char* operation) {
  AttendOptions with = with_score(options, cache.options().score, operation);
  if (options.on_empty == OnEmpty::uniform) {
    throw OptionError(message(operation,
                              ": on_empty uniform is the mean of all values, and a cache has room for more "
                              "than it holds"));
  }
  with.mask &= lengths(cache.lengths());
  if (cache.options().left >= 0) with.mask &= window(cache.options().left, 0, bottom_right());
  return check(q, with_rank(cache.parts().shown_keys(), q.rank()), with_rank(cache.values(), q.rank()), with,
               operation);
}

}  // namespace

Attended attend(View q, const Cache& cache, const AttendOptions& options) {
  const Problem problem = check_ask(q, cache, options, "attend");
  return ask(problem, make_scoring(problem, cache.parts().form));
}

void attend_into(View q, const Cache& cache, const AttendInto& into, const AttendOptions& options) {
  const Problem problem = check_ask(q, cache, with_places(options, into, "attend_into"), "attend_into");
  ask_into(problem, make_scoring(problem, cache.parts().form), into);
}

}  // namespace qkv
