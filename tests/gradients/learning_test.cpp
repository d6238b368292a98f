// gradients/learning_test.cpp: gradients are good for learning: a bandwidth on real data.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/qkv.h>

namespace qkv::test {
namespace {

// The best that one bandwidth can reach is 24.42 (../shared/data/README.md), by trying many.
TEST(LearningABandwidth, ReachesTheBestErrorOnMcycle) {
  const char* shared = std::getenv("QKV_SHARED");
  const std::filesystem::path path =
      std::filesystem::path(shared == nullptr ? "../shared" : shared) / "data/regression/mcycle.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  std::vector<double> times, acceleration;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    char comma = 0;
    double row = 0, t = 0, a = 0;
    if (std::istringstream(line) >> row >> comma >> t >> comma >> a) {
      times.push_back(t);
      acceleration.push_back(a);
    }
  }
  ASSERT_EQ(times.size(), 133u);
  const Variable x(Tensor::copy_of(View(times, {133, 1}))), y(Tensor::copy_of(View(acceleration, {133, 1})));
  Tensor not_itself({133, 133}, Dtype::boolean);
  for (std::size_t i = 0; i < not_itself.values<bool>().size(); ++i) not_itself.values<bool>()[i] = i % 134 != 0;
  const Variable logarithm = parameter(Tensor::of<double>({std::log(5.0)}, {1}));
  Adam adam({{"log_bandwidth", logarithm}}, {.rate = 0.1});
  double error = 0;
  for (int step = 0; step < 100; ++step) {
    const AttendVariables asked{.q = x, .k = x, .v = y, .bandwidths = exp(logarithm)};
    const Variable difference =
        attend(asked, {.score = gaussian(), .mask = keep(not_itself), .weigh = normalize()}).out - y;
    const Variable loss = mean(difference * difference);
    error = std::sqrt(*loss.value().as<double>());
    adam.zero_grad();
    backward(loss);
    adam.step();
  }
  EXPECT_LE(error, 24.5);
  EXPECT_GE(error, 24.40);
}

}  // namespace
}  // namespace qkv::test
