// examples/learn_a_function.cpp: a network of two layers learns the sine from points of it.
#include <cmath>
#include <cstddef>
#include <cstdio>

#include <qkv/ops.h>
#include <qkv/optim.h>

int main() {
  // 64 points of the sine between -2 and 4.
  qkv::Tensor x({64, 1}), y({64, 1}), first({16, 1}), second({1, 16});
  for (std::size_t i = 0; i < 64; ++i) {
    x.values<float>()[i] = static_cast<float>(i) * 6 / 63 - 2;
    y.values<float>()[i] = std::sin(x.values<float>()[i]);
  }
  // Weights that differ, so that hidden units learn different things.
  for (std::size_t i = 0; i < 16; ++i) {
    first.values<float>()[i] = std::cos(static_cast<float>(i));
    second.values<float>()[i] = std::cos(static_cast<float>(3 * i)) / 4;
  }
  const qkv::Variable inputs(std::move(x)), targets(std::move(y));
  const qkv::Variable W1 = qkv::parameter(std::move(first)), b1 = qkv::parameter(qkv::Tensor({16}));
  const qkv::Variable W2 = qkv::parameter(std::move(second)), b2 = qkv::parameter(qkv::Tensor({1}));

  qkv::Adam optimizer({{"W1", W1}, {"b1", b1}, {"W2", W2}, {"b2", b2}}, {.rate = 0.02});
  for (int step = 0; step <= 300; ++step) {
    const qkv::Variable error = linear(tanh(linear(inputs, W1, b1)), W2, b2) - targets;
    const qkv::Variable loss = mean(error * error);
    if (step % 100 == 0) {
      std::printf("step %3d: mean square error %.4f\n", step, static_cast<double>(loss.value().as<float>()[0]));
    }
    optimizer.zero_grad();
    backward(loss);
    optimizer.step();
  }
}

// Prints:
//   step   0: mean square error 0.6639
//   step 100: mean square error 0.0180
//   step 200: mean square error 0.0005
//   step 300: mean square error 0.0001
