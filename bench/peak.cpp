// bench/peak.cpp: the two limits of a machine, measured with the instruction set that the kernels use.
#include "bench/peak.h"

#include <array>
#include <cstdint>
#include <thread>

#include "kernels/targets.h"

#ifndef QKV_BENCH_PEAK_LOOPS  // this file is compiled once per instruction set; this once
#define QKV_BENCH_PEAK_LOOPS
namespace qkv::bench {
struct Loops {
  double operations_per_step;
  float (*multiply_add)(std::int64_t steps, float factor, float term);
  std::array<float (*)(const float* memory, std::size_t floats), 4> reads;
};
}  // namespace qkv::bench
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::bench::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Highway has no vectors for the compiler's baseline, but the machine and the compiler have.
using Vec = float __attribute__((vector_size(16)));
constexpr std::size_t lanes = 4;
HWY_INLINE Vec set(float value) { return Vec{value, value, value, value}; }
HWY_INLINE Vec add(Vec a, Vec b) { return a + b; }
HWY_INLINE Vec mul_add(Vec a, Vec b, Vec c) { return a * b + c; }
HWY_INLINE Vec load(const float* from) { return Vec{from[0], from[1], from[2], from[3]}; }
HWY_INLINE float first(Vec v) { return v[0]; }
#else
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;
constexpr std::size_t lanes = hn::MaxLanes(Tag());
HWY_INLINE Vec set(float value) { return hn::Set(Tag(), value); }
HWY_INLINE Vec add(Vec a, Vec b) { return hn::Add(a, b); }
HWY_INLINE Vec mul_add(Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); }
HWY_INLINE Vec load(const float* from) { return hn::LoadU(Tag(), from); }
HWY_INLINE float first(Vec v) { return hn::GetLane(v); }
#endif

// Twelve independent chains cover the latency of 4 to 6 cycles at two multiply-adds a cycle, and leave registers for
// the two factors with 16 of them.
constexpr int chains = 12;

float multiply_add(std::int64_t steps, float factor, float term) {
  const Vec x = set(factor), y = set(term);
  Vec sums[chains];
  for (auto& sum : sums) sum = y;
  for (std::int64_t i = 0; i < steps; ++i) {
    for (auto& sum : sums) sum = mul_add(sum, x, y);
  }
  for (int c = 1; c < chains; ++c) sums[0] = add(sums[0], sums[c]);
  return first(sums[0]);
}

// The memory as so many equal parts, read side by side; 16 vectors a step in all, so that every way does the same
// work. What is left over at the end, less than a step for each stream, is not read.
template <std::size_t streams>
float read(const float* memory, std::size_t floats) {
  constexpr std::size_t vectors = 16 / streams;
  const std::size_t part = floats / streams;
  Vec sums[8];
  for (auto& sum : sums) sum = set(0);
  for (std::size_t i = 0; i + vectors * lanes <= part; i += vectors * lanes) {
    for (std::size_t s = 0; s < streams; ++s) {
      for (std::size_t v = 0; v < vectors; ++v) {
        Vec& sum = sums[(s * vectors + v) % 8];
        sum = add(sum, load(memory + s * part + i + v * lanes));
      }
    }
  }
  for (int c = 1; c < 8; ++c) sums[0] = add(sums[0], sums[c]);
  return first(sums[0]);
}

const Loops loops = {2.0 * chains * lanes, multiply_add, {read<1>, read<2>, read<4>, read<8>}};

}  // namespace qkv::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::bench {
namespace {

const Loops& current_loops() { return kernels::QKV_PICK(loops); }

// Takes a loop's result, so that the compiler cannot leave the loop out.
void consume(float value) { [[maybe_unused]] volatile float sink = value; }

// Calls work(i) for every i < threads at the same time. Threads of its own: those of the library's pool take several
// pieces where another is late.
template <class Work>
void on_threads(int threads, const Work& work) {
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back([&work, i] { work(i); });
  work(0);
}

}  // namespace

Peak fma_peak(int threads) {
  // Half a millisecond or more for each thread, several times that where threads have to be started first.
  const std::int64_t steps = threads == 1 ? 200'000 : 2'000'000;
  const Loops& loops = current_loops();
  return {loops.operations_per_step * static_cast<double>(steps) * threads, [&loops, steps, threads] {
            on_threads(threads, [&](int) { consume(loops.multiply_add(steps, 0.999f, 0.001f)); });
          }};
}

std::vector<Peak> read_peaks(std::span<const std::byte> memory, int threads) {
  std::vector<Peak> peaks;
  const auto* floats = reinterpret_cast<const float*>(memory.data());
  const std::size_t share = memory.size() / sizeof(float) / static_cast<std::size_t>(threads);
  for (const auto read : current_loops().reads) {
    peaks.push_back({static_cast<double>(memory.size()), [=] {
                       on_threads(threads,
                                  [&](int i) { consume(read(floats + static_cast<std::size_t>(i) * share, share)); });
                     }});
  }
  return peaks;
}

}  // namespace qkv::bench
#endif
