// apps/demo_sentences.cpp: who looks at whom in three padded sentences.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include <qkv/attend.h>
#include <qkv/plot.h>

#include "demo.h"

namespace qkv::apps {
namespace {

using Sentence = std::vector<std::string>;

const std::vector<Sentence> sentences = {
    {"the", "cat", "sat", "on", "the", "mat"},
    {"attention", "weighs", "values"},
    {"every", "query", "asks", "each", "key"},
};
constexpr std::int64_t letters = 26;

// How often each letter occurs in the word, scaled to length 1: words that share letters point the same way.
void embed(const std::string& word, float* vector) {
  for (const char letter : word) vector[letter - 'a'] += 1;
  double squares = 0;
  for (std::int64_t i = 0; i < letters; ++i) squares += vector[i] * vector[i];
  for (std::int64_t i = 0; i < letters; ++i) vector[i] /= static_cast<float>(std::sqrt(squares));
}

// [B, T, D]: a sentence per batch entry; what is beyond its words stays zero.
Tensor embedded(std::int64_t longest) {
  Tensor result({static_cast<std::int64_t>(sentences.size()), longest, letters});
  float* vectors = result.values<float>().data();
  for (const Sentence& sentence : sentences) {
    for (std::size_t i = 0; i < sentence.size(); ++i)
      embed(sentence[i], vectors + static_cast<std::int64_t>(i) * letters);
    vectors += longest * letters;
  }
  return result;
}

std::string title(std::size_t number, std::size_t words, std::size_t longest) {
  const std::size_t padding = longest - words;
  std::string text = "Sentence " + std::to_string(number) + ": " + std::to_string(words) + " words";
  return padding == 0 ? text + ", no padding" : text + " and " + std::to_string(padding) + " of padding";
}

double sum_of_row_ends(View rows, std::int64_t from) {
  double sum = 0;
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    for (std::int64_t j = from; j < rows.extent(1); ++j)
      sum += rows.as<float>()[i * rows.stride(0) + j * rows.stride(1)];
  }
  return sum;
}

// One sentence's matrix out of [B, T, T].
View sentence_of(View weights, std::size_t b) {
  const View one = weights.slice(0, static_cast<std::int64_t>(b), 1);
  return View(one.data(), one.dtype(), {one.extent(1), one.extent(2)}, {one.stride(1), one.stride(2)});
}

}  // namespace

void show_sentences(bool color) {
  std::size_t longest = 0;
  std::vector<std::int64_t> lens;
  for (const Sentence& sentence : sentences) {
    longest = std::max(longest, sentence.size());
    lens.push_back(static_cast<std::int64_t>(sentence.size()));
  }
  const Tensor words = embedded(static_cast<std::int64_t>(longest));
  const View valid_lens(lens, {static_cast<std::int64_t>(lens.size())});
  // Scores are cosines here, at most 1; the scale spreads them, so that the weights differ visibly.
  const Attended attended =
      attend(words, words, words, {.score = dot(), .scale = 3, .mask = lengths(valid_lens), .want_weights = true});

  std::cout << "Three sentences attend to themselves. Every word is a query (a row) that asks\n"
               "all words of its sentence, the keys (columns). A word is embedded as the counts\n"
               "of its letters, so it looks most at itself and at words with the same letters;\n"
               "each row of weights sums to 1.\n"
               "A batch needs equal lengths, so the shorter sentences are padded. attend() is\n"
               "told the valid lengths: padding is excluded before the softmax and gets exactly\n"
               "nothing. (The padding's own rows answer nobody and are not shown.)\n\n";
  for (std::size_t b = 0; b < sentences.size(); ++b) {
    const Sentence& sentence = sentences[b];
    Sentence columns = sentence;
    columns.resize(longest, "(pad)");
    const View weights = sentence_of(attended.weights, b).slice(0, 0, lens[b]);
    std::cout << heat_map_text(weights, {.title = title(b + 1, sentence.size(), longest),
                                         .rows = sentence,
                                         .columns = columns,
                                         .color = color,
                                         .high = 0.5});
    if (sentence.size() < longest) {
      std::cout << "Together the weights of the padding are " << sum_of_row_ends(weights, lens[b]) << ".\n";
    }
    std::cout << "\n";
  }
}

}  // namespace qkv::apps
