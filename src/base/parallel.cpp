// base/parallel.cpp: one lazy pool of threads for the whole process.
#include "base/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace qkv {
namespace {

// More workers than this are never started, whatever a call asks for.
constexpr int max_workers = 1023;

// A few microseconds: the next call of a loop of small calls finds the workers awake. Waking a sleeper costs more.
constexpr int spins = 100;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

// One call of parallel_for; lives on the stack of its caller.
class Job {
 public:
  Job(std::int64_t count, FunctionRef<void(std::int64_t)> work) : work_(work), count_(count) {
    std::fegetenv(&float_environment_);
  }

  // Takes indices until none is left. An exception ends the job: no further index is taken. Since indices are taken
  // in rising order, all below the one that threw have been taken too, and the exception of the lowest is kept: it is
  // the same one whatever the number of threads.
  void run() {
    for (;;) {
      const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      try {
        work_(index);
      } catch (...) {
        next_.store(count_, std::memory_order_relaxed);
        const std::lock_guard lock(failure_mutex_);
        if (failure_ == nullptr || index < failed_index_) {
          failure_ = std::current_exception();
          failed_index_ = index;
        }
        return;
      }
    }
  }

  // The same on a worker, which rounds and flushes as the caller does: the bits must not depend on who computes.
  void run_as_helper() {
    std::fesetenv(&float_environment_);
    run();
  }

  void rethrow_failure() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  // Guarded by the pool's mutex; `helpers` may be read without it as a hint.
  int open_places = 0;           // helpers that may still join
  std::atomic<int> helpers = 0;  // that have joined and not left
  std::condition_variable helper_left;

 private:
  FunctionRef<void(std::int64_t)> work_;
  const std::int64_t count_;
  std::fenv_t float_environment_;
  std::atomic<std::int64_t> next_ = 0;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::int64_t failed_index_ = 0;
};

class Pool {
 public:
  // Runs the job on this thread and on up to `helpers` workers.
  void run(Job& job, int helpers) {
    open(job, helpers);
    job.run();
    close(job);
  }

 private:
  void open(Job& job, int helpers) {
    int sleepers = 0;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      has_jobs_.store(true, std::memory_order_relaxed);
      job.open_places = helpers;
      while (workers_ < helpers && start_worker()) ++workers_;
      sleepers = std::min(helpers, sleeping_);
    }
    for (; sleepers > 0; --sleepers) job_arrived_.notify_one();
  }

  void close(Job& job) {
    std::unique_lock lock(mutex_);
    if (job.open_places > 0) remove(job);
    if (job.helpers == 0) return;
    lock.unlock();
    for (int i = 0; i < spins && job.helpers != 0; ++i) pause_briefly();
    lock.lock();
    job.helper_left.wait(lock, [&] { return job.helpers == 0; });
  }

  void remove(const Job& job) {
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
    has_jobs_.store(!jobs_.empty(), std::memory_order_relaxed);
  }

  // False where the system gives no more threads: the caller then does the work with those there are.
  bool start_worker() {
    // Signals are for the threads of the program: a worker starts with all of them blocked.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
      std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  [[noreturn]] void work() {
    for (;;) {
      for (int i = 0; i < spins && !has_jobs_.load(std::memory_order_relaxed); ++i) pause_briefly();
      std::unique_lock lock(mutex_);
      ++sleeping_;
      job_arrived_.wait(lock, [&] { return !jobs_.empty(); });
      --sleeping_;
      Job& job = *jobs_.front();
      if (--job.open_places == 0) remove(job);
      ++job.helpers;
      lock.unlock();
      job.run_as_helper();
      lock.lock();
      // Notified under the lock: the job may be gone as soon as its caller can take the lock.
      if (--job.helpers == 0) job.helper_left.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable job_arrived_;
  std::vector<Job*> jobs_;              // those with open places, oldest first
  std::atomic<bool> has_jobs_ = false;  // !jobs_.empty(), to be read without the mutex as a hint
  int workers_ = 0;
  int sleeping_ = 0;
};

// Never destroyed: its workers sleep in it until the process ends.
std::atomic<Pool*> shared_pool = nullptr;

Pool& pool() {
  Pool* current = shared_pool.load(std::memory_order_acquire);
  if (current == nullptr) {
    auto fresh = std::make_unique<Pool>();
    if (shared_pool.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) {
      current = fresh.release();
    }
  }
  return *current;
}

// The child of a fork has none of the workers and finds the mutex in any state: it forgets the pool and starts anew.
[[maybe_unused]] const int forgets_pool_on_fork =
    pthread_atfork(nullptr, nullptr, [] { shared_pool.store(nullptr, std::memory_order_relaxed); });

}  // namespace

void parallel_for(std::int64_t count, int threads, FunctionRef<void(std::int64_t)> work) {
  if (count <= 1 || threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  Job job(count, work);
  pool().run(job, static_cast<int>(std::min<std::int64_t>({count - 1, threads - 1, max_workers})));
  job.rethrow_failure();
}

}  // namespace qkv
