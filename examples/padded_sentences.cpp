// examples/padded_sentences.cpp: three sentences of different length in one batch; no word looks ahead or at padding.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <qkv/attend.h>

int main() {
  // Four words of one feature each. What stands in the padding, here 9, has no influence.
  const std::vector<float> words = {1, 2, 3, 4,  //
                                    1, 2, 9, 9,  //
                                    1, 9, 9, 9};
  const std::vector<std::int64_t> lengths = {4, 2, 1};
  const qkv::View x(words, {3, 4, 1});
  const qkv::Mask mask = qkv::lengths(qkv::View(lengths, {3})) & qkv::causal();
  const qkv::Attended pooled = qkv::attend(x, x, x, {.mask = mask, .want_weights = true});

  for (std::size_t sentence = 0; sentence < lengths.size(); ++sentence) {
    const auto last = static_cast<std::size_t>(lengths[sentence] - 1);
    std::printf("sentence %zu, word %zu looks at", sentence + 1, last + 1);
    for (const float weight : pooled.weights.values<float>().subspan((sentence * 4 + last) * 4, 4)) {
      std::printf(" %.3f", static_cast<double>(weight));
    }
    std::printf("\n");
  }
}

// Prints:
//   sentence 1, word 4 looks at 0.000 0.000 0.018 0.982
//   sentence 2, word 2 looks at 0.119 0.881 0.000 0.000
//   sentence 3, word 1 looks at 1.000 0.000 0.000 0.000
