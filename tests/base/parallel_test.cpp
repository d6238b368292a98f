// tests/base/parallel_test.cpp: the pool of threads.
#include "base/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

using namespace std::chrono_literals;

TEST(ParallelFor, EveryIndexIsVisitedOnce) {
  for (const int threads : {0, 1, 2, 3, 8}) {
    for (const std::int64_t count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      parallel_for(count, threads, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1) << "threads " << threads << ", count " << count;
    }
  }
}

TEST(ParallelFor, WhatTheWorkWroteIsSeenByTheCaller) {
  for (int round = 0; round < 500; ++round) {
    std::vector<int> results(10);  // plain ints: a race would be seen by the thread sanitizer
    parallel_for(10, 3, [&](std::int64_t i) { results[static_cast<std::size_t>(i)] = static_cast<int>(i) + round; });
    for (int i = 0; i < 10; ++i) ASSERT_EQ(results[static_cast<std::size_t>(i)], i + round);
  }
}

TEST(ParallelFor, SeveralThreadsWorkAtTheSameTime) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  parallel_for(2, 2, [&](std::int64_t) {
    ++inside;
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (inside == 2) met = true;
  });
  EXPECT_TRUE(met);
}

TEST(ParallelFor, OneThreadMeansTheCallersOwn) {
  const auto caller = std::this_thread::get_id();
  parallel_for(10, 1, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  parallel_for(1, 8, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelFor, NoMoreThreadsWorkThanWereAskedFor) {
  parallel_for(64, 8, [](std::int64_t) {});  // the pool has seven workers from here on
  std::mutex mutex;
  std::set<std::thread::id> workers;
  parallel_for(64, 3, [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    workers.insert(std::this_thread::get_id());
  });
  EXPECT_LE(workers.size(), 3u);
}

TEST(ParallelFor, AnExceptionReachesTheCallerAndTheRestIsNotBegun) {
  for (const int threads : {1, 2, 8}) {
    std::atomic<std::int64_t> begun = 0;
    const auto work = [&](std::int64_t i) {
      ++begun;
      if (i == 5) throw std::runtime_error("index 5 failed");
    };
    expect_error<std::runtime_error>([&] { parallel_for(1000000, threads, work); }, {"index 5 failed"});
    EXPECT_LT(begun, 1000000);
  }
}

TEST(ParallelFor, OfSeveralExceptionsThatOfTheLowestIndexComesOut) {
  for (int round = 0; round < 200; ++round) {
    try {
      parallel_for(100, 8, [](std::int64_t i) {
        if (i >= 7) throw i;
      });
      FAIL() << "nothing was thrown";
    } catch (const std::int64_t index) {
      ASSERT_EQ(index, 7);
    }
  }
}

TEST(ParallelFor, AfterAnExceptionThePoolWorks) {
  EXPECT_THROW(parallel_for(10, 4, [](std::int64_t) { throw 1; }), int);
  std::atomic<int> visits = 0;
  parallel_for(10, 4, [&](std::int64_t) { ++visits; });
  EXPECT_EQ(visits, 10);
}

TEST(ParallelFor, NestedAndConcurrentCallsAllFinish) {
  std::atomic<int> visits = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        parallel_for(5, 3, [&](std::int64_t) { parallel_for(4, 2, [&](std::int64_t) { ++visits; }); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(visits, 4 * 50 * 5 * 4);
}

TEST(ParallelFor, WorkersRoundAsTheirCallerDoes) {
  const int before = std::fegetround();
  std::fesetround(FE_UPWARD);
  std::vector<int> modes(64);
  parallel_for(64, 4, [&](std::int64_t i) {
    modes[static_cast<std::size_t>(i)] = std::fegetround();
    std::this_thread::sleep_for(100us);  // so that the others get some too
  });
  std::fesetround(before);
  EXPECT_EQ(modes, std::vector<int>(64, FE_UPWARD));
  parallel_for(64, 4, [&](std::int64_t i) { modes[static_cast<std::size_t>(i)] = std::fegetround(); });
  EXPECT_EQ(modes, std::vector<int>(64, before));
}

TEST(ParallelFor, WorkersTakeNoSignals) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> unblocked = 0;
  parallel_for(64, 4, [&](std::int64_t) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (std::this_thread::get_id() != caller && sigismember(&blocked, SIGINT) == 0) ++unblocked;
    std::this_thread::sleep_for(100us);
  });
  EXPECT_EQ(unblocked, 0);
}

TEST(ParallelFor, TheChildOfAForkHasAPoolOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not support threads after a fork of a program with threads";
#endif
  parallel_for(10, 4, [](std::int64_t) {});  // the parent's pool exists
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that hangs ends as a failure
    std::atomic<int> visits = 0;
    parallel_for(50, 4, [&](std::int64_t) { ++visits; });
    _exit(visits == 50 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::atomic<int> visits = 0;
  parallel_for(50, 4, [&](std::int64_t) { ++visits; });
  EXPECT_EQ(visits, 50);
}

}  // namespace
}  // namespace qkv::test
