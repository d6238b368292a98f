// io/near_name.h: which of several names was probably meant.
#pragma once

#include <string_view>
#include <vector>

#include <qkv/io.h>

namespace qkv {

// The name among these tensors that is most like `name`: the same under a prefix ("model.encoder.weight"), or a few
// letters apart. Empty where none is near.
std::string_view near_name(std::string_view name, const std::vector<StoredTensor>& tensors);

}  // namespace qkv
