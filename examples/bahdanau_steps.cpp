// examples/bahdanau_steps.cpp: a decoder asks one sentence step by step, with an additive score; its keys are
// projected once, before the first step.
#include <cstdio>
#include <vector>

#include <qkv/prepared.h>

int main() {
  // Three words, each annotated with a vector of width 3; the score has three hidden units.
  const std::vector<float> words = {1, 0, 0,  //
                                    0, 1, 0,  //
                                    0, 0, 1};
  const qkv::View annotations(words, {3, 3});
  // score = w . tanh(Wq state + Wk word): one unit is on where state and word agree, two are where they do not, and
  // units count against a word. A trained model finds its own weights.
  const std::vector<float> W = {2, 0, 0, 0, 2, 0, 0, 0, 2}, w = {-4, -4, -4};
  const qkv::Score score = qkv::additive(qkv::View(W, {3, 3}), qkv::View(W, {3, 3}), qkv::View(w, {3}));
  const qkv::Prepared sentence = qkv::prepare(annotations, annotations, score);

  std::vector<float> state = {1, 0, 0};  // looks for the first word
  for (int step = 1; step <= 3; ++step) {
    const qkv::Attended answer = qkv::attend(qkv::View(state, {1, 3}), sentence, {.want_weights = true});
    std::printf("step %d looks at", step);
    for (const float weight : answer.weights.values<float>()) std::printf(" %.3f", static_cast<double>(weight));
    std::printf("\n");
    // The context makes the next state. Here it looks for the word after the one that was found.
    const auto context = answer.out.values<float>();
    state = {context[2], context[0], context[1]};
  }
}

// Prints:
//   step 1 looks at 0.954 0.023 0.023
//   step 2 looks at 0.028 0.944 0.028
//   step 3 looks at 0.029 0.029 0.941
