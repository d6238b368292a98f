// attention/onnx_test.cpp: the conformance cases of the ONNX operator Attention, opsets 23 and 24.
//
// The cases are not part of this repository: QKV_SHARED names the folder that has onnx_attention/ in it, and ../shared
// beside the repository is where they are looked for otherwise. Where they are missing, the test is skipped aloud.
#include <qkv/attend.h>
#include <qkv/io.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"

namespace qkv::test {
namespace {

namespace fs = std::filesystem;

fs::path shared_folder() {
  if (const char* named = std::getenv("QKV_SHARED")) return named;
  return fs::path(__FILE__).parent_path() / "../../../shared";
}

// One case: its attributes, and its arrays as they are read on demand.
class OnnxCase {
 public:
  explicit OnnxCase(const fs::path& folder) : folder_(folder) {
    std::ifstream file(folder / "case.json");
    const nlohmann::json json = nlohmann::json::parse(file);
    attributes_ = json.at("attributes");
    for (const auto& name : json.at("inputs")) present_.insert(name.get<std::string>());
    for (const auto& name : json.at("outputs")) present_.insert(name.get<std::string>());
    const std::set<std::string> known = {"q_num_heads",           "kv_num_heads",     "scale", "softcap", "is_causal",
                                         "qk_matmul_output_mode", "softmax_precision"};
    for (const auto& [name, value] : attributes_.items()) {
      EXPECT_TRUE(known.contains(name)) << "an attribute that this test does not know: " << name;
    }
  }

  bool has(const std::string& name) const { return present_.contains(name); }
  Tensor read(const std::string& name) const { return read_npy(folder_ / (name + ".npy")); }
  template <class T>
  T attribute(const std::string& name, T otherwise) const {
    return attributes_.value(name, otherwise);
  }

 private:
  fs::path folder_;
  nlohmann::json attributes_;
  std::set<std::string> present_;
};

// [B, T, heads * width] seen as [B, heads, T, width]; rank 4 is that already.
View with_heads(const View& x, std::int64_t heads) { return x.rank() == 3 ? x.split(2, heads).swapped(1, 2) : x; }

// Both [B, H, T, D]: one after the other along T.
Tensor join(const View& past, const View& present) {
  const Tensor a = Tensor::copy_of(past), b = Tensor::copy_of(present);
  const std::int64_t B = b.shape()[0], H = b.shape()[1], D = b.shape()[3];
  const auto row = static_cast<std::size_t>(D) * size_of(b.dtype());
  const std::size_t a_bytes = static_cast<std::size_t>(a.shape()[2]) * row,
                    b_bytes = static_cast<std::size_t>(b.shape()[2]) * row;
  Tensor joined({B, H, a.shape()[2] + b.shape()[2], D}, b.dtype());
  auto* to = static_cast<std::byte*>(joined.view().data());
  for (std::size_t head = 0; head < static_cast<std::size_t>(B * H); ++head) {
    std::memcpy(to, static_cast<const std::byte*>(a.view().data()) + head * a_bytes, a_bytes);
    std::memcpy(to + a_bytes, static_cast<const std::byte*>(b.view().data()) + head * b_bytes, b_bytes);
    to += a_bytes + b_bytes;
  }
  return joined;
}

// A mask shorter than the keys excludes the rest: false, or -inf, behind it.
Tensor pad_mask(const View& mask, std::int64_t Tk) {
  const std::int64_t length = mask.shape().back();
  std::vector<std::int64_t> extents(mask.shape().begin(), mask.shape().end());
  extents.back() = Tk;
  Tensor padded(Shape(extents), mask.dtype() == Dtype::boolean ? Dtype::boolean : Dtype::float32);
  const std::vector<float> values = reference::elements<float>(mask);
  for (std::int64_t at = 0; at < padded.elements(); ++at) {
    const bool inside = at % Tk < length;
    const float value =
        inside ? values[static_cast<std::size_t>(at / Tk * length + at % Tk)] : -std::numeric_limits<float>::infinity();
    if (padded.dtype() == Dtype::boolean) {
      padded.values<bool>()[static_cast<std::size_t>(at)] = inside && value != 0;
    } else {
      padded.values<float>()[static_cast<std::size_t>(at)] = value;
    }
  }
  return padded;
}

// Expectations are exact results rounded once. float32: within 4 units in the last place, or 1e-6 of the row's largest
// value, whichever is larger. float16: within 1 unit in the last place.
testing::AssertionResult matches(const View& got, const View& expected) {
  if (!(got.shape() == expected.shape())) {
    return testing::AssertionFailure() << "shape " << got.shape().text() << ", expected " << expected.shape().text();
  }
  const std::vector<float> a = reference::elements<float>(got), e = reference::elements<float>(expected);
  const auto width = static_cast<std::size_t>(expected.shape().back());
  for (std::size_t row = 0; row < e.size(); row += width) {
    float largest = 0;
    for (std::size_t i = row; i < row + width; ++i) {
      if (std::isfinite(e[i])) largest = std::max(largest, std::abs(e[i]));
    }
    for (std::size_t i = row; i < row + width; ++i) {
      bool right = false;
      if (std::isnan(e[i]) || std::isinf(e[i])) {
        right = std::isnan(e[i]) ? std::isnan(a[i]) : a[i] == e[i];
      } else if (expected.dtype() == Dtype::float16) {
        right = std::isfinite(a[i]) && ulp_distance(Float16(a[i]), Float16(e[i])) <= 1;
      } else {
        right = std::isfinite(a[i]) && (ulp_distance(a[i], e[i]) <= 4 || std::abs(a[i] - e[i]) <= 1e-6f * largest);
      }
      if (!right) {
        return testing::AssertionFailure() << "element " << i << " of " << got.shape().text() << " is " << a[i]
                                           << ", expected " << e[i] << "; the row's largest is " << largest;
      }
    }
  }
  return testing::AssertionSuccess();
}

void run(const OnnxCase& c) {
  const auto heads = c.attribute<std::int64_t>("q_num_heads", 0),
             key_heads = c.attribute<std::int64_t>("kv_num_heads", 0);
  const Tensor Q = c.read("Q"), K = c.read("K"), V = c.read("V");
  const View q = with_heads(Q, heads);
  Tensor k = Tensor::copy_of(with_heads(K, key_heads)), v = Tensor::copy_of(with_heads(V, key_heads));

  Alignment alignment = top_left();
  if (c.has("past_key")) {
    const Tensor past_key = c.read("past_key"), past_value = c.read("past_value");
    alignment = offset(past_key.shape()[2]);
    k = join(past_key, k);
    v = join(past_value, v);
    EXPECT_TRUE(same_bits(k, c.read("present_key")));
    EXPECT_TRUE(same_bits(v, c.read("present_value")));
  }
  AttendOptions options;
  Tensor lens, mask;
  if (c.has("nonpad_kv_seqlen")) {
    lens = c.read("nonpad_kv_seqlen");
    options.mask &= lengths(lens);
    alignment = bottom_right();
  }
  if (c.attribute("is_causal", 0) != 0) options.mask &= causal(alignment);
  if (c.has("attn_mask")) {
    mask = pad_mask(c.read("attn_mask"), k.shape()[2]);
    options.mask &= mask.dtype() == Dtype::boolean ? keep(mask) : bias(mask);
  }
  const double scale = c.attribute("scale", 0.0);
  if (scale != 0) options.scale = scale;
  options.softcap = c.attribute("softcap", 0.0);
  const bool wants_product = c.has("qk_matmul_output");
  const int mode = c.attribute("qk_matmul_output_mode", 0);
  if (wants_product) {
    constexpr ScoreStage stages[] = {ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased};
    options.want_weights = mode == 3;
    if (mode < 3) options.want_scores = stages[mode];
  }

  const Attended got = attend(q, k, v, options);
  const Tensor Y = c.read("Y");
  EXPECT_EQ(got.out.dtype(), Y.dtype());
  EXPECT_TRUE(matches(got.out, Tensor::copy_of(with_heads(Y, heads)))) << "in Y";
  if (wants_product) {
    EXPECT_TRUE(matches(mode == 3 ? got.weights : got.scores, c.read("qk_matmul_output"))) << "in qk_matmul_output";
  }
}

TEST(Onnx, AllConformanceCasesPass) {
  const fs::path folder = shared_folder() / "onnx_attention";
  if (!fs::is_directory(folder)) {
    GTEST_SKIP() << "the ONNX conformance cases are not at " << folder << "; QKV_SHARED names the folder they are in";
  }
  on_every_isa([&] {
    int ran = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      SCOPED_TRACE(entry.path().filename().string());
      run(OnnxCase(entry.path()));
      ++ran;
    }
    EXPECT_EQ(ran, 76);
  });
}

}  // namespace
}  // namespace qkv::test
