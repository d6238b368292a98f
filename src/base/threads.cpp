// base/threads.cpp: how many threads a call may use.
#include <qkv/threads.h>

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string_view>

#include <qkv/error.h>

#include "base/message.h"
#include "base/parallel.h"

namespace qkv {
namespace {

struct CpuSetFree {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// The processors this process may run on (taskset, cpuset), which can be fewer than the machine has.
int processors() {
  // The system refuses a set that is too small for it.
  for (std::size_t cpus = 1024; cpus <= std::size_t{1} << 20; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, CpuSetFree> set(CPU_ALLOC(cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 && online <= std::numeric_limits<int>::max() ? static_cast<int>(online) : 1;
}

int initial_threads() {
  const char* set = std::getenv("QKV_THREADS");
  if (set == nullptr) return processors();
  const std::string_view text = set;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads < 1) {
    throw OptionError(message("QKV_THREADS is \"", text, "\" but must be a whole number, 1 or more"));
  }
  return threads;
}

std::atomic<int> chosen_threads = 0;  // 0: not yet known

}  // namespace

int thread_count() {
  int threads = chosen_threads.load(std::memory_order_relaxed);
  if (threads == 0) {
    const int initial = initial_threads();
    // Unless somebody has set it meanwhile: then `threads` becomes what they set.
    if (chosen_threads.compare_exchange_strong(threads, initial, std::memory_order_relaxed)) threads = initial;
  }
  return threads;
}

void set_thread_count(int threads) {
  if (threads < 1) throw OptionError(message("set_thread_count: threads = ", threads, " must be 1 or more"));
  chosen_threads.store(threads, std::memory_order_relaxed);
}

int resolve_threads(int requested, const char* operation) {
  if (requested < 0) {
    throw OptionError(message(operation, ": threads = ", requested, " must be 1 or more, or 0 for thread_count()"));
  }
  return requested == 0 ? thread_count() : requested;
}

}  // namespace qkv
