// attention/attend_jvp.cpp: checks what attend_jvp is given, and runs it.
#include <qkv/attend_jvp.h>

#include <algorithm>
#include <variant>

#include <qkv/error.h>

#include "attention/block_tangents.h"
#include "attention/forward.h"
#include "attention/load.h"
#include "attention/recall.h"
#include "attention/tangent_forms.h"
#include "base/aligned.h"
#include "base/message.h"
#include "base/parallel.h"
#include "tensor/broadcast.h"

namespace qkv {
namespace {

constexpr const char* operation = "attend_jvp";

void require_smooth(const Problem& p, const Weigh& weigh) {
  const auto kind = p.score.kind;
  const bool smooth = kind == Score::Kind::dot || kind == Score::Kind::scaled_dot || kind == Score::Kind::cosine ||
                      kind == Score::Kind::bilinear || kind == Score::Kind::additive || kind == Score::Kind::gaussian ||
                      kind == Score::Kind::constant;
  if (!smooth) {
    throw OptionError(message(operation, ": the score ", name_of(kind),
                              " has no tangents; dot, scaled_dot, cosine, bilinear, additive, gaussian and constant "
                              "have"));
  }
  if (weigh.kind != Weigh::Kind::softmax && weigh.kind != Weigh::Kind::normalize && weigh.kind != Weigh::Kind::raw) {
    throw OptionError(message(operation, ": only softmax, normalize and raw have tangents"));
  }
}

// In the shape of what it is the tangent of.
View checked(const View& tangent, const View& of, const Problem& p, const char* name) {
  if (!tangent) return {};
  compute_dtype({{name, of.dtype()}, {"its tangent", tangent.dtype()}}, operation);
  const View seen = tangent.rank() == p.rank ? rank4(tangent) : View();
  if (!seen || !(seen.shape() == of.shape())) {
    throw ShapeError(message(operation, ": tangents.", name, " of shape ", tangent.shape().text(),
                             " must have the shape of ", name, ": ", p.shapes()));
  }
  return seen;
}

std::vector<View> bias_rates(const AttendTangents& tangents, const AttendOptions& options, const Problem& p) {
  std::vector<View> rates;
  std::size_t count = 0;
  for (const Mask::Part& part : options.mask.parts()) {
    const auto* bias = std::get_if<mask_part::Bias>(&part);
    if (bias == nullptr || count++ >= tangents.bias.size() || !tangents.bias[count - 1]) continue;
    const View& rate = tangents.bias[count - 1];
    if (!is_floating(rate.dtype())) {
      throw DtypeError(message(operation, ": tangents.bias[", count - 1, "] is ", name_of(rate.dtype()),
                               "; it must be of a floating dtype"));
    }
    if (!(rate.shape() == bias->bias.shape())) {
      throw ShapeError(message(operation, ": tangents.bias[", count - 1, "] of shape ", rate.shape().text(),
                               " must have that of the bias, ", bias->bias.shape().text()));
    }
    rates.push_back(broadcast_to(rate, {p.B, p.H, p.Tq, p.Tk}));
  }
  if (!tangents.bias.empty() && tangents.bias.size() != count) {
    throw OptionError(
        message(operation, ": ", tangents.bias.size(), " tangents for the ", count, " biases of the mask"));
  }
  return rates;
}

template <class T>
AttendRates run(const Problem& p, const Scoring& scoring, const AttendAnswer& answer, const AttendTangents& tangents,
                const AttendOptions& options) {
  const Weighing& w = p.weighing;
  const Strategy<T> strategy = choose_strategy<T>(p, scoring, Pass::rates);
  const VisibleRuns runs = visible_runs(p);
  const View dq = checked(tangents.q, p.q, p, "q"), dk = checked(tangents.k, p.k, p, "k"),
             dv = checked(tangents.v, p.v, p, "v");
  AttendRates rates{Tensor(p.shape({p.Tq, p.Dv}), p.compute), {}};
  if (options.want_lse) rates.lse = Tensor(p.shape({p.Tq}), p.compute);
  const TangentForms forms = make_tangent_forms(p, scoring, dq, dk, runs);
  const Tensor values = dv ? seen_rows(dv, dv.shape(), p.compute, &runs) : Tensor();
  TangentTask<T> task{p, strategy, {}, {}, {}, {}, bias_rates(tangents, options, p), 1, {}, {}, {}};
  if (forms.left) task.left = forms.left;
  if (forms.left) task.right = forms.right;
  if (values) task.dv = values;
  task.factor = score_factor(w);
  task.out_rates = with_heads(rates.out.view(), {p.Tq, p.Dv}, p, "out");
  if (rates.lse) task.lse_rates = with_heads(rates.lse.view(), {p.Tq}, p, "lse");
  task.reference.assign(static_cast<std::size_t>(p.B * p.H * p.Tq), reference_without_state<T>(w));
  if (has_state(w)) {
    const View state = required(answer.state, "state", {p.Tq}, p);
    task.out = required(answer.out, "out", {p.Tq, p.Dv}, p);
    for (std::int64_t i = 0; i < p.B * p.H * p.Tq; ++i) {
      T value = 0;
      load_row(state, place(state, {i / p.Tq / p.H, i / p.Tq % p.H, i % p.Tq}), 1, 1, &value);
      task.reference[static_cast<std::size_t>(i)] = reference_of(value, answer.state_kind, w);
    }
  }
  if (p.Tq == 0 || p.Tk == 0) return rates;
  const std::size_t bytes = Workspace<T>(p, strategy, nullptr).bytes, room_bytes = TangentRoom<T>(task, nullptr).bytes;
  const std::int64_t tasks = p.B * p.H * strategy.groups;
  parallel_for(tasks, useful_threads(p, strategy, tasks), [&](std::int64_t i) {
    const Reused memory(bytes + room_bytes);
    auto* at = static_cast<std::byte*>(memory.get());
    Workspace<T> workspace(p, strategy, at);
    TangentRoom<T> room(task, at + bytes);
    const std::int64_t head = i / strategy.groups;
    BlockTangents<T>(task, workspace, room).run({head / p.H, head % p.H, i % strategy.groups});
  });
  return rates;
}

}  // namespace

AttendRates attend_jvp(View q, View k, View v, const AttendAnswer& answer, const AttendTangents& tangents,
                       const AttendOptions& options) {
  const Problem problem = check_again(q, k, v, options, operation);
  require_smooth(problem, options.weigh);
  const Scoring scoring = make_scoring(problem);
  return problem.compute == Dtype::float64 ? run<double>(problem, scoring, answer, tangents, options)
                                           : run<float>(problem, scoring, answer, tangents, options);
}

}  // namespace qkv
