// support/isas.h: tests on every instruction set that runs here.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/isa.h>

namespace qkv::test {

// Uses an instruction set until the end of the scope.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) : before_(current_isa()) { set_isa(isa); }
  ~WithIsa() { set_isa(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

// Those that tests run on: all, or the one that QKV_TEST_ISA names, `best` being the best that runs here.
inline std::vector<Isa> tested_isas() {
  std::vector<Isa> isas = supported_isas();
  const char* wanted = std::getenv("QKV_TEST_ISA");
  if (wanted == nullptr) return isas;
  if (std::string_view(wanted) == "best") return {isas.front()};
  std::erase_if(isas, [&](Isa isa) { return name_of(isa) != wanted; });
  if (isas.empty()) throw std::runtime_error("QKV_TEST_ISA: " + std::string(wanted) + " does not run here");
  return isas;
}

// Runs the body once with each tested instruction set; what fails names the one it failed on.
template <class Body>
void on_every_isa(Body body) {
  for (const Isa isa : tested_isas()) {
    SCOPED_TRACE("isa " + std::string(name_of(isa)));
    const WithIsa with(isa);
    body();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace qkv::test
