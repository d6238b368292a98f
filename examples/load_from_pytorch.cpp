// examples/load_from_pytorch.cpp: a model that was trained in PyTorch runs here, from its state dict.
//
//   load_from_pytorch FILE      written by safetensors.torch.save_file(model.state_dict(), FILE)
#include <cstdio>
#include <exception>

#include <qkv/nn.h>

// In PyTorch: words = nn.Embedding(10, 8, padding_idx=0), look = nn.MultiheadAttention(8, 2, batch_first=True),
// norm = nn.LayerNorm(8), read = nn.GRU(8, 4, batch_first=True, bidirectional=True), decide = nn.Linear(8, 3).
struct Tagger {
  qkv::nn::Embedding words;
  qkv::nn::MultiHeadAttention look;
  qkv::nn::LayerNorm norm;
  qkv::nn::Gru read;
  qkv::nn::Linear decide;

  explicit Tagger(qkv::nn::Init init)
      : words(10, 8, init, {.padding = 0}),
        look({.query_width = 8, .heads = 2}, init),
        norm(8, init),
        read(8, 4, init, {.both_directions = true}),
        decide(8, 3, init) {}

  qkv::Variable operator()(qkv::View ids) const {
    const qkv::Variable x = words(ids);
    return decide(read(norm(x + look(x, qkv::nn::eval)), qkv::nn::eval).all);
  }
  qkv::nn::Parameters parameters() const {
    return qkv::nn::join({words.parameters("words."), look.parameters("look."), norm.parameters("norm."),
                          read.parameters("read."), decide.parameters("decide.")});
  }
};

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "load_from_pytorch FILE\n");
    return 2;
  }
  const qkv::SafetensorsFile file(arguments[1]);
  const Tagger model(qkv::nn::Init(1));
  qkv::nn::load(model.parameters(), file);

  const qkv::NoGrad no_grad;
  const qkv::Variable tags = model(qkv::Tensor::of<std::int64_t>({3, 1, 4, 1, 5}, {1, 5}));
  for (std::int64_t t = 0; t < 5; ++t) {
    const float* row = tags.value().as<float>() + 3 * t;
    std::printf("%6.3f %6.3f %6.3f\n", static_cast<double>(row[0]), static_cast<double>(row[1]),
                static_cast<double>(row[2]));
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// Prints:
//    0.542  0.495  0.477
//    0.878  0.242  0.740
//    0.725  0.329  0.411
//    0.938  0.054  0.637
//    0.615  0.239  0.032
