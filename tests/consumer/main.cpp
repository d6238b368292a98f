// consumer/main.cpp: a program that uses the installed qkv: results, exceptions and its own functor cross the border.
#include <cmath>
#include <cstdio>
#include <string_view>

#include <qkv/qkv.h>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (!condition) {
    std::printf("failed: %s\n", what);
    ++failures;
  }
}

}  // namespace

int main() {
  const auto q = qkv::Tensor::of<float>({1, 0}, {1, 2});
  const auto k = qkv::Tensor::of<float>({1, 0, 0, 1, 1, 1}, {3, 2});
  const auto v = qkv::Tensor::of<float>({10, 20, 30}, {3, 1});

  const auto all = qkv::attend(q, k, v, {.score = qkv::dot()});
  const double e = std::exp(1.0);
  const double expected = (10 * e + 20 + 30 * e) / (e + 1 + e);
  expect(std::abs(all.out.values<float>()[0] - expected) < 1e-5, "attend pools by softmax of the dot products");

  const auto only_second = [](const qkv::KeepBlock& block) {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = block.first_key + j == 1;
    }
    return qkv::Kept::some;
  };
  const auto one = qkv::attend(q, k, v, {.mask = qkv::keep_by(only_second)});
  expect(one.out.values<float>()[0] == 20, "a functor compiled here decides which keys are seen");

  try {
    qkv::attend(q, k, qkv::Tensor({4, 1}));
    expect(false, "values of another length than the keys are refused");
  } catch (const qkv::ShapeError& error) {
    expect(std::string_view(error.what()).find("attend") != std::string_view::npos, "the error names the operation");
  }

  std::printf("qkv %s: %s\n", qkv::version.data(), failures == 0 ? "fine" : "broken");
  return failures == 0 ? 0 : 1;
}
