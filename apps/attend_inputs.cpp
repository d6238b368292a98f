// apps/attend_inputs.cpp: what `qkv attend` reads.
#include "attend_inputs.h"

#include <utility>

namespace qkv::apps {

AttendInputs::AttendInputs(const AttendArguments& given) : options(given.options) {
  // float64 does not mix with the others; so beside a .npy file of other numbers, text gives way.
  Tensor inputs[] = {read_array(given.q), read_array(given.k), read_array(given.v)};
  const std::filesystem::path* files[] = {&given.q, &given.k, &given.v};
  View* views[] = {&q, &k, &v};
  for (int i = 0; i < 3; ++i) {
    if (!is_text_file(*files[i]) && inputs[i].dtype() != Dtype::float64) text_dtype_ = Dtype::float32;
  }
  for (int i = 0; i < 3; ++i) {
    if (is_text_file(*files[i])) inputs[i] = Tensor::copy_of(inputs[i], text_dtype_);
    *views[i] = arrays_.emplace_back(std::move(inputs[i]));
  }
  options.score = score(given);
  options.mask = mask(given);
  if (given.minimum) options.weigh = hard(*given.minimum);
  if (options.seed) options.training = true;
  if (!given.sequence_ids.empty()) {
    options.sequence_ids = array(given.sequence_ids, Elements::whole_numbers, Vector::either);
  }
  if (!given.rows.empty()) {
    options.want_rows =
        arrays_.emplace_back(Tensor::copy_of(View(given.rows, {static_cast<std::int64_t>(given.rows.size())})));
  }
  options.want_lse = !given.lse.empty();
  options.want_weights = !given.weights.empty();
  options.want_scores = given.scores.empty() ? ScoreStage::none : given.stage;
  options.want_mass = !given.mass.empty();
  options.want_entropy = !given.entropy.empty();
  options.want_effective = !given.effective.empty();
}

View AttendInputs::array(const std::filesystem::path& path, Elements elements, Vector vector) {
  return arrays_.emplace_back(read_array(path, elements, vector));
}

// Of a score: in the dtype of the queries, where it is written as text.
View AttendInputs::parameter(const std::filesystem::path& path, Vector vector) {
  const View read = array(path, Elements::numbers, vector);
  return is_text_file(path) ? arrays_.emplace_back(Tensor::copy_of(read, text_dtype_)) : read;
}

Score AttendInputs::score(const AttendArguments& given) {
  if (given.score == Score::Kind::bilinear) return bilinear(parameter(given.matrix));
  if (given.score == Score::Kind::additive) {
    return additive(parameter(given.wq), parameter(given.wk), parameter(given.w, Vector::one_line));
  }
  Score score{.kind = given.score};
  if (given.bandwidth) score.bandwidth = *given.bandwidth;
  if (!given.bandwidths.empty()) score.bandwidths = parameter(given.bandwidths, Vector::one_line);
  return score;
}

Alignment AttendInputs::alignment(const AttendArguments::Align& given) {
  if (given.offsets.empty()) return given.alignment;
  return offset(array(given.offsets, Elements::whole_numbers, Vector::either));
}

Mask AttendInputs::mask(const AttendArguments& given) {
  constexpr Elements truths = Elements::zeros_and_ones;
  Mask mask;
  if (!given.lengths.empty()) mask &= lengths(array(given.lengths, Elements::whole_numbers, Vector::one_column));
  if (!given.keep.empty()) mask &= keep(array(given.keep, truths));
  if (!given.drop.empty()) mask &= drop(array(given.drop, truths));
  if (!given.keep_keys.empty()) mask &= keep_keys(array(given.keep_keys, truths));
  if (!given.bias.empty()) mask &= bias(array(given.bias, Elements::numbers));
  if (!given.block_mask.empty()) {
    mask &= block_mask(array(given.block_mask, truths), given.block_size->first, given.block_size->second);
  }
  const Alignment shared = given.align ? alignment(*given.align) : Alignment();
  if (given.causal) {
    const Alignment own = alignment(*given.causal);
    mask &= causal(own.kind == Alignment::Kind::unnamed ? shared : own);
  }
  if (given.window) mask &= window(given.window->first, given.window->second, shared);
  if (!given.alibi.empty()) mask &= alibi(array(given.alibi, Elements::numbers, Vector::either), shared);
  return mask;
}

}  // namespace qkv::apps
