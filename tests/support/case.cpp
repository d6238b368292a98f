// support/case.cpp: what one attention problem asks for.
#include "support/case.h"

#include <sstream>

namespace qkv::test {

std::string_view name_of(MaskKind kind) {
  constexpr std::string_view names[] = {"lengths",   "query_lengths", "causal", "window",     "keep",    "drop",
                                        "keep_keys", "bias",          "alibi",  "block_mask", "keep_by", "edit_by"};
  return names[static_cast<std::size_t>(kind)];
}

bool is_positional(MaskKind kind) {
  return kind == MaskKind::causal || kind == MaskKind::window || kind == MaskKind::alibi;
}

std::string_view score_name(Score::Kind kind) {
  constexpr std::string_view names[] = {"dot",     "scaled_dot", "cosine",     "bilinear",     "additive", "gaussian",
                                        "laplace", "boxcar",     "triangular", "epanechnikov", "constant", "yours"};
  return names[static_cast<std::size_t>(kind)];
}

bool is_kernel(Score::Kind kind) { return Score{.kind = kind}.is_kernel(); }

bool takes_two_widths(Score::Kind kind) { return kind == Score::Kind::bilinear || kind == Score::Kind::additive; }

const std::vector<Weigh>& all_weighings() {
  static const std::vector<Weigh> all = {softmax(), normalize(), raw(), hard(), hard(-0.25), uniform(), top_k(3)};
  return all;
}

std::string weigh_name(const Weigh& weigh) {
  constexpr std::string_view names[] = {"softmax", "normalize", "raw", "hard", "uniform", "top"};
  std::string name(names[static_cast<std::size_t>(weigh.kind)]);
  if (weigh.kind == Weigh::Kind::top_k) name += '_' + std::to_string(weigh.k);
  return weigh.minimum ? name + "_from_a_minimum" : name;
}

bool has_log_sum(const Weigh& weigh) {
  return weigh.kind == Weigh::Kind::softmax || weigh.kind == Weigh::Kind::normalize || weigh.kind == Weigh::Kind::top_k;
}

Case with_all_statistics(Case c) {
  c.want_lse = c.want_weights = c.want_mass = c.want_entropy = c.want_effective = c.want_partial = true;
  c.want_scores = ScoreStage::biased;
  c.want_top = 4;
  for (std::int64_t i = c.Tq - 1; i >= 0; i -= 2) c.want_rows.push_back(i);
  return c;
}

std::string Case::text() const {
  constexpr std::string_view alignments[] = {"unnamed", "top_left", "bottom_right", "offset", "offsets"};
  constexpr std::string_view empties[] = {"zero", "uniform", "nan", "error"};
  constexpr std::string_view stages[] = {"none", "scaled", "capped", "biased"};
  constexpr std::string_view bandwidths[] = {"a number", "[1]", "[D]", "[H, 1]", "[H, D]"};
  std::ostringstream s;
  s << "B " << B << " H " << H << " Hk " << Hk << " Tq " << Tq << " Tk " << Tk << " D " << D << " Dv " << Dv << ", "
    << qkv::name_of(q) << '/' << qkv::name_of(k) << '/' << qkv::name_of(v) << " to "
    << (out ? qkv::name_of(*out) : "the same") << ", " << name_of(layout) << ", masks";
  for (const MaskKind kind : masks) s << ' ' << name_of(kind);
  s << " (" << alignments[static_cast<std::size_t>(alignment)] << "), softcap " << softcap << ", on_empty "
    << empties[static_cast<std::size_t>(on_empty)] << ", lse " << want_lse << ", weights " << want_weights
    << ", scores " << stages[static_cast<std::size_t>(want_scores)] << ", threads " << threads << ", seed " << seed;
  if (scale) s << ", scale " << *scale;
  s << ", " << score_name(score) << " and " << weigh_name(weigh) << ", temperature " << temperature << ", dropout "
    << dropout;
  if (takes_two_widths(score)) s << ", Dk " << Dk.value_or(D) << ", E " << E << ", per head " << parameters_per_head;
  if (is_kernel(score)) s << ", bandwidth " << bandwidths[static_cast<std::size_t>(bandwidth)];
  s << ", rows " << want_rows.size() << ", mass " << want_mass << ", top " << want_top << ", entropy " << want_entropy
    << ", effective " << want_effective << ", partial " << want_partial;
  return s.str();
}

}  // namespace qkv::test
