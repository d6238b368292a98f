// qkv/prepared.h: keys and values made ready for one score, to be asked many times.
#pragma once

#include <cstdint>
#include <memory>

#include <qkv/attend.h>
#include <qkv/export.h>
#include <qkv/score.h>
#include <qkv/tensor.h>

namespace qkv {

struct KeyForm;  // the library's own

// What prepare returns. It borrows k, v and the score's parameters, which must outlive it, and owns what it computed.
// Cheap to copy: copies share. Safe to ask from several threads at once.
class QKV_API Prepared {
 public:
  View keys() const { return keys_; }
  View values() const { return values_; }
  const Score& score() const { return score_; }
  std::int64_t bytes() const;  // of what it computed from the keys

  const std::shared_ptr<const KeyForm>& form() const { return form_; }  // for the library

 private:
  friend Prepared prepare(View k, View v, const Score& score, View valid_lens);
  View keys_, values_;
  Score score_;
  std::shared_ptr<const KeyForm> form_;
};

// Does once what a score needs of its keys: cosine normalises them, gaussian centres them and adds up their norms,
// additive projects them; for the others there is nothing to do. k and v as attend takes them.
//
// With valid_lens, [B], int32 or int64, keys from there on are not read; asks should then have `lengths` to the same
// effect in their mask.
//
// The scores of far keys of a gaussian depend, in their last bits, on which keys are there: attend with k and v takes
// the keys that its mask shows, prepare takes all. Throws ShapeError, OptionError, DtypeError.
QKV_API Prepared prepare(View k, View v, const Score& score = scaled_dot(), View valid_lens = {});

// attend, attend_into and plan with keys that were prepared. options.score must be left as it is: the score is that
// of the keys.
QKV_API Attended attend(View q, const Prepared& keys, const AttendOptions& options = {});
QKV_API void attend_into(View q, const Prepared& keys, const AttendInto& into, const AttendOptions& options = {});
QKV_API Plan plan(View q, const Prepared& keys, const AttendOptions& options = {});

}  // namespace qkv
