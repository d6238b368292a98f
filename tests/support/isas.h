// support/isas.h: tests on every instruction set that runs here.
#pragma once

#include <string>
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

// Those that tests run on: all, but under the thread sanitizer only the best. Which threads meet where is the same for
// all of them, and the baseline's loops take many times as long there.
inline std::vector<Isa> tested_isas() {
#if defined(__SANITIZE_THREAD__)
  return {supported_isas().front()};
#else
  return supported_isas();
#endif
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
