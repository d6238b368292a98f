// apps/attend_inputs.h: what `qkv attend` reads.
#pragma once

#include <vector>

#include <qkv/attend.h>

#include "arrays.h"
#include "attend_options.h"

namespace qkv::apps {

// Reads every array that was named and makes of them what attend takes. The views, the mask and the score borrow the
// arrays, which live here.
class AttendInputs {
 public:
  explicit AttendInputs(const AttendArguments& given);
  AttendInputs(const AttendInputs&) = delete;
  AttendInputs& operator=(const AttendInputs&) = delete;

  View q, k, v;
  AttendOptions options;

 private:
  View array(const std::filesystem::path& path, Elements elements, Vector vector = Vector::none);
  View parameter(const std::filesystem::path& path, Vector vector = Vector::none);
  Alignment alignment(const AttendArguments::Align& given);
  Score score(const AttendArguments& given);
  Mask mask(const AttendArguments& given);

  std::vector<Tensor> arrays_;  // views of them stay valid when this grows: moving a tensor does not move its elements
  Dtype text_dtype_ = Dtype::float64;  // what numbers in text files become
};

}  // namespace qkv::apps
