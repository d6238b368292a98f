// bench/tape.h: what benchmarks of the tape have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <qkv/tensor.h>
#include <qkv/threads.h>

namespace qkv::bench {

// Random float32, of about this size.
Tensor filled(const Shape& shape, std::uint64_t seed, double size);

// What is wrong about numbers that should be these, up to float32's errors in sums of `terms` products: nothing, or the
// worst of them.
std::string compare(const char* name, const View& got, const std::vector<double>& right, double terms);
// The first that is not empty.
std::string first_of(std::initializer_list<std::string> all);

// Threads are a setting of the process for ops, while it is measured.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~WithThreads() { set_thread_count(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace qkv::bench
