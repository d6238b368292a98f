// examples/your_own_mask.cpp: two documents in one sequence, kept apart by a function of yours on blocks of pairs.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <qkv/attend.h>

int main() {
  const std::vector<int> document = {0, 0, 0, 1, 1};
  const std::vector<float> words = {1, 2, 3, 10, 20};
  const qkv::View x(words, {5, 1});

  // Called per block of queries and keys, from several threads; the compiler sees through it as through any loop.
  const auto same_document = [&](const qkv::KeepBlock& block) {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) {
        const auto query = static_cast<std::size_t>(block.first_query + i);
        const auto key = static_cast<std::size_t>(block.first_key + j);
        block.at(i, j) = document[query] == document[key];
      }
    }
    return qkv::Kept::some;
  };
  // A scale of 0 makes all scores equal: each word gets the mean of its document.
  const qkv::Attended pooled = qkv::attend(x, x, x, {.scale = 0, .mask = qkv::keep_by(same_document)});
  for (const float mean : pooled.out.values<float>()) std::printf("%g\n", static_cast<double>(mean));
}

// Prints:
//   2
//   2
//   2
//   15
//   15
