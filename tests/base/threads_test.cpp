// tests/base/threads_test.cpp: how many threads a call may use.
#include <qkv/threads.h>

#include <sched.h>
#include <stdlib.h>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

// The first call decides, so what it decides is tried in processes of their own, which print the answer and end.
void say_thread_count(const char* variable) {
  if (variable == nullptr) {
    unsetenv("QKV_THREADS");
  } else {
    setenv("QKV_THREADS", variable, 1);
  }
  try {
    fprintf(stderr, "threads: %d\n", thread_count());
  } catch (const OptionError& error) {
    fprintf(stderr, "%s\n", error.what());
  }
  exit(0);
}

class ThreadCountDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(ThreadCountDeathTest, ItIsWhatTheEnvironmentSays) {
  EXPECT_EXIT(say_thread_count("3"), testing::ExitedWithCode(0), "threads: 3\n");
}

TEST_F(ThreadCountDeathTest, WithoutTheEnvironmentItIsTheProcessorsOfThisProcess) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EXIT(say_thread_count(nullptr), testing::ExitedWithCode(0),
              "threads: " + std::to_string(CPU_COUNT(&set)) + "\n");
}

TEST_F(ThreadCountDeathTest, AnEnvironmentThatSaysNoNumberIsRefused) {
  for (const char* wrong : {"", "0", "-2", "two", "2x", " 2", "99999999999"}) {
    EXPECT_EXIT(say_thread_count(wrong), testing::ExitedWithCode(0),
                "QKV_THREADS is \"" + std::string(wrong) + "\" but must be a whole number, 1 or more");
  }
}

TEST(ThreadCount, ItCanBeSet) {
  const int before = thread_count();
  set_thread_count(5);
  EXPECT_EQ(thread_count(), 5);
  EXPECT_EQ(resolve_threads(0, "attend"), 5);
  EXPECT_EQ(resolve_threads(2, "attend"), 2);
  set_thread_count(before);
}

TEST(ThreadCount, FewerThanOneIsRefused) {
  const int before = thread_count();
  expect_error<OptionError>([] { set_thread_count(0); }, {"set_thread_count", "threads = 0", "1 or more"});
  expect_error<OptionError>([] { resolve_threads(-1, "gemm"); }, {"gemm", "threads = -1", "1 or more"});
  EXPECT_EQ(thread_count(), before);
}

}  // namespace
}  // namespace qkv::test
