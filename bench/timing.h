// bench/timing.h: the best time of something that is called again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <utility>

namespace qkv::bench {

// One thread is timed by its CPU time, which other programs on the machine disturb least; several by the wall.
class Clock {
 public:
  explicit Clock(int threads) : clock_(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {}
  double seconds() const {
    timespec now;
    clock_gettime(clock_, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

 private:
  clockid_t clock_;
};

// A piece of work that is timed by the best of many. Each piece lasts at least a millisecond, so that reading the
// clock (0.7 microseconds of CPU time) weighs nothing, and not much longer, so that most bursts of noise miss some.
class Subject {
 public:
  explicit Subject(std::function<void()> call) : call_(std::move(call)) {}

  void time_once_more(const Clock& clock) {
    for (;; repeats_ *= 2) {
      const double start = clock.seconds();
      for (std::int64_t i = 0; i < repeats_; ++i) call_();
      const double spent = clock.seconds() - start;
      if (spent < least_seconds) continue;
      best_ = std::min(best_, spent / static_cast<double>(repeats_));
      return;
    }
  }

  double seconds() const { return best_; }  // of one call; infinite before the first time

 private:
  static constexpr double least_seconds = 1e-3;

  std::function<void()> call_;
  std::int64_t repeats_ = 1;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace qkv::bench
