// bench/serve.cpp: measures on request, so that another program can be measured in turns with this one.
#include <algorithm>
#include <chrono>
#include <functional>
#include <istream>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <qkv/error.h>

#include "base/message.h"
#include "bench/attend.h"
#include "bench/backward.h"
#include "bench/chosen_isa.h"
#include "bench/decode.h"
#include "bench/layers.h"
#include "bench/run.h"
#include "bench/scores.h"
#include "bench/statistics.h"
#include "bench/timing.h"
#include "bench/training.h"

namespace qkv::bench {
namespace {

struct Request {
  std::string what, name;
  std::int64_t B = 1, H = 0, T = 0, D = 0;
  double seconds = 0;

  bool same_case(const Request& other) const {
    return what == other.what && name == other.name && B == other.B && H == other.H && T == other.T && D == other.D;
  }
};

// "attend causal H=8 T=512 D=64 seconds=0.1"
Request parse(const std::string& line) {
  std::istringstream words(line);
  Request request;
  words >> request.what >> request.name;
  std::map<std::string, double> numbers;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    std::istringstream value(equals == std::string::npos ? "" : word.substr(equals + 1));
    double number = 0;
    if (!(value >> number) || !value.eof()) throw OptionError(message("bench: \"", word, "\" is not name=number"));
    numbers[word.substr(0, equals)] = number;
  }
  numbers.try_emplace("B", 1);
  for (const char* name : {"B", "H", "T", "D", "seconds"}) {
    // A head of a million keys is the largest that makes sense here.
    if (!(numbers[name] > 0 && numbers[name] <= 1 << 20)) {
      throw OptionError(message("bench: \"", line, "\" must say ", name, ", between 0 and ", 1 << 20));
    }
  }
  request.B = static_cast<std::int64_t>(numbers["B"]);
  request.H = static_cast<std::int64_t>(numbers["H"]);
  request.T = static_cast<std::int64_t>(numbers["T"]);
  request.D = static_cast<std::int64_t>(numbers["D"]);
  request.seconds = numbers["seconds"];
  return request;
}

// Of a benchmark whose shapes are given.
Case case_of(Bench (*bench)(const Options&), const Request& request, int threads) {
  Options options;
  options.only_case = request.name;
  options.T = request.T;
  options.D = request.D;
  options.threads = threads;
  const std::pair<std::string, std::int64_t> heads{"H", request.H};
  for (const Group& group : bench(options).groups) {
    for (const Case& made : group.cases) {
      if (made.reported && std::ranges::find(made.shape, heads) != made.shape.end()) return made;
    }
  }
  throw OptionError(message("bench: ", request.what, " has no case ", request.name, " with H = ", request.H,
                            ", T = ", request.T, ", D = ", request.D));
}

Case make_case(const Request& request, int threads) {
  if (request.what == "attend") return attend_case(request.name, request.H, request.T, request.D, threads);
  if (request.what == "decode") return decode_case(request.name, request.H, request.T, request.D, threads);
  if (request.what == "training" && (request.name == "gru" || request.name == "linear")) {
    return layer_case(request.name, threads);
  }
  if (request.what == "training") return training_case(request.name, request.H, request.T, request.D, threads);
  if (request.what == "layers") {
    return layers_case(request.name, request.B, request.T, request.D, request.H, threads);
  }
  if (request.what == "scores") return case_of(scores_bench, request, threads);
  if (request.what == "statistics") return case_of(statistics_bench, request, threads);
  throw OptionError(message("bench: \"", request.what,
                            "\" cannot be asked for; attend, decode, scores, statistics, training and layers can"));
}

// The last request, ready to be measured again.
struct Prepared {
  Request request;
  std::function<void()> call;
};

double best_ms(const Request& request, int threads, Prepared& last) {
  if (!last.call || !last.request.same_case(request)) {
    last.call = nullptr;  // before the next one takes memory
    const Case subject = make_case(request, threads);
    const std::string wrong = subject.check();
    if (!wrong.empty()) throw Error(message("bench: ", request.what, " ", request.name, ": ", wrong));
    last = {request, subject.call};
  }
  Subject timing(last.call);
  const Clock clock(threads);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(request.seconds);
  do {
    timing.time_once_more(clock);
  } while (std::chrono::steady_clock::now() < end);
  return timing.seconds() * 1e3;
}

}  // namespace

int serve(const Options& options, std::istream& in, std::ostream& out) {
  const ChosenIsa isa(options.isa);
  Prepared last;
  for (std::string line; std::getline(in, line);) {
    nlohmann::json answer;
    try {
      answer["ms"] = best_ms(parse(line), options.threads, last);
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    out << answer.dump() << std::endl;
    if (answer.contains("error")) return 1;
  }
  return 0;
}

}  // namespace qkv::bench
