// nn/golden.h: what PyTorch computed, from the files that golden/make.py writes.
#pragma once

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include <qkv/nn.h>

#include "reference/elements.h"
#include "support/close.h"

namespace qkv::test {

class Golden {
 public:
  Golden(const std::string& name, Dtype dtype)
      : file_("tests/nn/golden/" + name + ".safetensors"), dtype_(dtype), name_(name) {}

  const SafetensorsFile& file() const { return file_; }
  bool has(const std::string& name) const { return file_.contains(name); }
  View view(const std::string& name) const { return file_.view(name); }  // as it is in the file
  Variable input(const std::string& name) const { return parameter(file_.read("in." + name, dtype_)); }
  Tensor upstream(const std::string& name) const { return file_.read("up." + name, dtype_); }
  // A mask that is added: no parameter.
  Tensor numbers(const std::string& name) const { return file_.read(name, dtype_); }

  // Within a few roundings of the numbers that were added up.
  void expect(const std::string& name, const View& got) const {
    const View exact = file_.view(name);
    ASSERT_TRUE(got) << name_ << ": " << name << " is absent";
    ASSERT_EQ(got.shape(), exact.shape()) << name_ << ": " << name;
    const double epsilon = dtype_ == Dtype::float64 ? 0x1p-53 : 0x1p-24;
    const double allowed = 64 * epsilon * std::max(1.0, largest_magnitude(exact));
    const std::vector<double> right = reference::elements<double>(exact), is = reference::elements<double>(got);
    for (std::size_t i = 0; i < right.size(); ++i) {
      ASSERT_NEAR(is[i], right[i], allowed) << name_ << ": " << name << ", element " << i;
    }
  }
  void expect_gradient(const std::string& input, const Variable& variable) const {
    expect("din." + input, variable.grad());
  }
  template <class Layer>
  void expect_gradients(const Layer& layer) const {
    for (const NamedParameter& named : layer.parameters()) {
      SCOPED_TRACE(named.name);
      const View stored = file_.view("grad." + named.name);
      // Without rows in a batch there is nothing to add up, and parameters may have got no gradient at all.
      if (!named.parameter.grad() && largest_magnitude(stored) == 0) continue;
      expect("grad." + named.name, named.parameter.grad());
    }
  }

 private:
  SafetensorsFile file_;
  Dtype dtype_;
  std::string name_;
};

}  // namespace qkv::test
