// examples/learn_bandwidth.cpp: kernel regression learns by gradients what "near" means, from a table of two columns.
//
//   learn_bandwidth [TABLE.csv]     the last two columns are x and y; without a table, a noisy wave is made up
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <qkv/qkv.h>

struct Table {
  std::vector<double> x, y;
};

static Table noisy_wave() {
  Table table;
  for (int i = 0; i < 60; ++i) {
    table.x.push_back(0.1 * i);
    table.y.push_back(std::sin(table.x.back()) + 0.3 * std::sin(37.0 * i * i));
  }
  return table;
}

static Table read_table(const char* path) {
  Table table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    double x = 0, y = 0;
    if (cells.size() < 2 || !(std::istringstream(cells[cells.size() - 2]) >> x)) continue;  // the header
    if (!(std::istringstream(cells.back()) >> y)) continue;
    table.x.push_back(x);
    table.y.push_back(y);
  }
  return table;
}

int main(int count, char** arguments) {
  const Table table = count > 1 ? read_table(arguments[1]) : noisy_wave();
  const auto rows = static_cast<std::int64_t>(table.x.size());
  if (rows < 2) return std::fprintf(stderr, "learn_bandwidth: no table of two columns in %s\n", arguments[1]), 1;
  const qkv::Variable x(qkv::Tensor::copy_of(qkv::View(table.x, {rows, 1})));
  const qkv::Variable y(qkv::Tensor::copy_of(qkv::View(table.y, {rows, 1})));

  // Every row is estimated from all others: leave-one-out. What is learnt is the logarithm of the bandwidth.
  const auto others = [](const qkv::KeepBlock& block) {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = block.first_query + i != block.first_key + j;
    }
    return qkv::Kept::some;
  };
  const qkv::Variable logarithm = qkv::parameter(qkv::Tensor::of<double>({std::log(5.0)}, {1}));
  qkv::Adam adam({{"log_bandwidth", logarithm}}, {.rate = 0.1});
  for (int step = 0; step <= 100; ++step) {
    const qkv::Variable bandwidth = qkv::exp(logarithm);
    const qkv::Variable estimate =
        qkv::attend({.q = x, .k = x, .v = y, .bandwidths = bandwidth},
                    {.score = qkv::gaussian(), .mask = qkv::keep_by(others), .weigh = qkv::normalize()})
            .out;
    const qkv::Variable error = estimate - y, loss = qkv::mean(error * error);
    if (step % 25 == 0) {
      std::printf("step %3d: bandwidth %.3f, error of rows left out %.3f\n", step, *bandwidth.value().as<double>(),
                  std::sqrt(*loss.value().as<double>()));
    }
    adam.zero_grad();
    qkv::backward(loss);
    adam.step();
  }
}

// Prints:
//   step   0: bandwidth 5.000, error of rows left out 0.725
//   step  25: bandwidth 0.492, error of rows left out 0.241
//   step  50: bandwidth 0.239, error of rows left out 0.215
//   step  75: bandwidth 0.196, error of rows left out 0.212
//   step 100: bandwidth 0.180, error of rows left out 0.212
