// examples/multi_head_mirror.cpp: a multi-head layer learns to look at the mirrored place of a sequence.
#include <cstdio>
#include <random>

#include <qkv/nn.h>

int main() {
  constexpr std::int64_t B = 128, T = 6, letters = 4;
  // Each step of a sequence is a letter and its place, both as one 1 among zeros; the answer is the letter at T - 1 -
  // t.
  qkv::Tensor inputs({B, T, letters + T}), answers({B, T}, qkv::Dtype::int64);
  std::mt19937 random(1);
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t letter = static_cast<std::int64_t>(random() % letters);
      inputs.view().as<float>()[(b * T + t) * (letters + T) + letter] = 1;
      inputs.view().as<float>()[(b * T + t) * (letters + T) + letters + t] = 1;
      answers.view().as<std::int64_t>()[b * T + T - 1 - t] = letter;
    }
  }
  const qkv::Variable x(std::move(inputs));

  qkv::nn::Init init(1);
  const qkv::nn::MultiHeadAttention layer(
      {.query_width = letters + T, .heads = 2, .head_query_width = 8, .output_width = letters, .dropout = 0.1}, init);
  qkv::Adam optimizer(layer.parameters(), {.rate = 0.05});
  for (std::uint64_t step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    backward(cross_entropy(layer(x, qkv::nn::train(step)), answers));
    optimizer.step();
  }

  const qkv::nn::MultiHeadAttended learned = layer.with_weights(x, x, x, qkv::nn::eval);
  const qkv::Variable loss = cross_entropy(learned.out, answers);
  std::printf("cross-entropy %.1f\n", static_cast<double>(loss.value().as<float>()[0]));
  for (std::int64_t t = 0; t < T; ++t) {  // of the first sequence
    std::printf("step %d looks at", static_cast<int>(t));
    for (std::int64_t j = 0; j < T; ++j) {
      const float* weights = learned.weights.view().as<float>();
      std::printf(" %.1f", static_cast<double>(weights[t * T + j] + weights[(T + t) * T + j]) / 2);
    }
    std::printf("\n");
  }
}

// Prints:
//   cross-entropy 0.0
//   step 0 looks at 0.0 0.0 0.0 0.0 0.0 1.0
//   step 1 looks at 0.0 0.0 0.0 0.0 1.0 0.0
//   step 2 looks at 0.0 0.0 0.0 1.0 0.0 0.0
//   step 3 looks at 0.0 0.0 1.0 0.0 0.0 0.0
//   step 4 looks at 0.0 1.0 0.0 0.0 0.0 0.0
//   step 5 looks at 1.0 0.0 0.0 0.0 0.0 0.0
