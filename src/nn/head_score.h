// nn/head_score.h: what the score of a multi-head layer learns.
#pragma once

#include <qkv/nn.h>

namespace qkv::nn {

// For widths that are all said.
HeadScore make_head_score(const MultiHeadOptions& widths, Init& init);

// Puts it where attend and prepare look for it.
void put_score(const HeadScore& score, AttendVariables& variables);

}  // namespace qkv::nn
