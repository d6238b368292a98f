// qkv/cache.h: keys and values that grow, step by step.
#pragma once

#include <cstdint>
#include <memory>

#include <qkv/attend.h>
#include <qkv/export.h>
#include <qkv/score.h>
#include <qkv/tensor.h>

namespace qkv {

struct CacheOptions {
  // How its keys are asked. Keys are made ready for the score when they are appended. Parameters are borrowed.
  Score score = scaled_dot();
  // Of the stored keys and values: float32, float16, bfloat16 or float64. float16 and bfloat16 are for scores that use
  // keys as they are: dot, scaled_dot, bilinear, and distances and functions of yours.
  Dtype dtype = Dtype::float32;
  // Negative: all keys stay. Otherwise keys that window(left, 0) hides from every later query are thrown away, and
  // attend on the cache has that window.
  std::int64_t left = -1;
  std::int64_t capacity = 0;  // tokens to have room for at first
};

// Owns the keys and values of B sequences, each of its own length. Appending copies what is appended; what is there is
// copied only when the room is exhausted and doubles. Not safe to append while others ask; asking at once is safe.
class QKV_API Cache {
 public:
  // Hk key heads, keys D wide, values Dv wide. Throws ShapeError, OptionError, DtypeError.
  Cache(std::int64_t B, std::int64_t Hk, std::int64_t D, std::int64_t Dv, const CacheOptions& options = {});
  ~Cache();
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;

  // Appends tokens to every sequence: k [B, Hk, T, D], v [B, Hk, T, Dv] (rank 3 with Hk = 1), any floating dtype that
  // goes with the cache's. counts, [B], int32 or int64: of these T, only so many to each sequence.
  // If it throws, nothing was appended.
  void append(View k, View v, View counts = {});

  void clear();  // all sequences become empty; the room stays

  View lengths() const;           // [B], int64: tokens that are held, per sequence
  View evicted() const;           // [B], int64: tokens that were thrown away before those
  View keys() const;              // [B, Hk, longest, D'] as they are stored, made ready for the score
  View values() const;            // [B, Hk, longest, Dv]
  std::int64_t capacity() const;  // tokens per sequence before the room grows
  const CacheOptions& options() const;

  struct Parts;  // the library's own
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

// attend over the tokens that the cache holds: its lengths, and its window if it has one, come on top of options.mask;
// options.score must be left as it is. A mask's alignment is bottom_right where the queries are the last tokens that
// were appended, as in decoding; then causal(bottom_right()) makes the steps equal to one causal pass over all tokens.
QKV_API Attended attend(View q, const Cache& cache, const AttendOptions& options = {});
QKV_API void attend_into(View q, const Cache& cache, const AttendInto& into, const AttendOptions& options = {});

}  // namespace qkv
