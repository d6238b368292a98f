// ops/attend.cpp: attention as an op.
#include <optional>
#include <utility>
#include <variant>

#include <qkv/attend_backward.h>
#include <qkv/attend_op.h>
#include <qkv/error.h>

#include "attention/attend_at.h"
#include "base/message.h"
#include "ops/check.h"
#include "ops/heads.h"
#include "ops/lines.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

// The places of inputs on the tape, the first three as heads.h has them; biases follow.
enum Input : int {
  in_q,
  in_k,
  in_v,
  in_matrix,
  in_Wq,
  in_Wk,
  in_w,
  in_sigma,
  in_scale,
  in_softcap,
  in_slopes,
  in_biases
};
enum Output : int { out_out, out_lse, out_entropy };

double number_of(const Variable& variable, const char* name) {
  if (variable.rank() != 0) {
    refuse_shapes("attend", message(name, " must be one number, of rank 0").c_str(), {{name, variable.shape()}});
  }
  return floating_at(variable.value(), 0);
}

void check_mask(const AttendVariables& x, const Mask& mask) {
  std::size_t biases = 0, alibis = 0;
  const auto require = [](const Variable& variable, const View& view, const char* what) {
    if (!variable || variable.value().data() == view.data()) return;
    throw OptionError(message("attend: the variable given for ", what, " does not show what the mask holds"));
  };
  for (const Mask::Part& part : mask.parts()) {
    if (const auto* bias = std::get_if<mask_part::Bias>(&part)) {
      if (biases < x.biases.size()) require(x.biases[biases], bias->bias, "a bias");
      ++biases;
    }
    if (const auto* alibi = std::get_if<mask_part::Alibi>(&part)) {
      require(x.slopes, alibi->slopes, "slopes");
      ++alibis;
    }
  }
  if (!x.biases.empty() && x.biases.size() != biases) {
    throw OptionError(message("attend: ", x.biases.size(), " variables for the ", biases, " biases of the mask"));
  }
  if (x.slopes && alibis != 1) throw OptionError("attend: slopes are those of the mask's one ALiBi part");
}

Score with_variables(const AttendVariables& x, Score score) {
  const auto show = [](View& view, const Variable& variable) {
    if (variable) view = variable.value();
  };
  show(score.matrix, x.matrix);
  show(score.query_weights, x.query_weights);
  show(score.key_weights, x.key_weights);
  show(score.hidden_weights, x.hidden_weights);
  show(score.bandwidths, x.bandwidths);
  return score;
}

std::vector<Variable> inputs_of(const AttendVariables& x) {
  std::vector<Variable> inputs = {
      x.q,          x.k,     x.v,       x.matrix, x.query_weights, x.key_weights, x.hidden_weights,
      x.bandwidths, x.scale, x.softcap, x.slopes};
  inputs.insert(inputs.end(), x.biases.begin(), x.biases.end());
  return inputs;
}

// What the backward pass holds: the inputs, and what the forward pass left.
struct Held {
  AttendVariables x;
  HeadSeats seats;
  std::optional<PreparedVariables> keys;
  AttendOptions options;
  Attended answer;
  HeadSeat out;
  Variable entropy;
};

// q, k and v get their gradients in place, unless two of them are seen by different inputs in one memory; then it is an
// array that is added.
struct Places {
  Places(const HeadSeats& seats, Backward& back) : targets(back) {
    const HeadSeat* all[] = {&seats.q, &seats.k, &seats.v};
    MutableView* places[] = {&into.dq, &into.dk, &into.dv};
    bool* adds[] = {&into.add_dq, &into.add_dk, &into.add_dv};
    for (std::size_t i = 0; i < 3; ++i) {
      const HeadSeat& seat = *all[i];
      if (!back.needs(seat.input)) continue;
      const HeadTargets::Place place = targets.place(seat, seats);
      *places[i] = place.gradient;
      *adds[i] = place.add;
      if (place.gradient || seat.heads == 0) continue;
      own[i] = Tensor(seat.variable.shape(), seat.variable.dtype());
      *places[i] = seat.seen(own[i].view());
    }
  }
  HeadTargets targets;
  AttendGradientsInto into;
  Tensor own[3];
};

void attend_back(const Held& held, Backward& back) {
  const auto needs_any = [&](int first, int last) {
    bool any = false;
    for (int i = first; i < last; ++i) any |= back.needs(i);
    return any;
  };
  const int biases = static_cast<int>(held.x.biases.size());
  AttendAnswer answer(held.answer);
  answer.out = held.out.view();
  if (held.entropy) answer.entropy = held.entropy.value();
  AttendUpstream upstream;
  if (const View dout = back.upstream(out_out)) upstream.out = held.out.seen(dout);
  int output = 1;
  if (held.options.want_lse) upstream.lse = back.upstream(output++);
  if (held.options.want_entropy) upstream.entropy = back.upstream(output);
  const HeadSeats& seats = held.seats;
  const AttendWanted wanted{back.needs(seats.q.input),
                            back.needs(seats.k.input),
                            back.needs(seats.v.input),
                            needs_any(in_matrix, in_scale),
                            back.needs(in_scale),
                            back.needs(in_softcap),
                            needs_any(in_biases, in_biases + biases),
                            back.needs(in_slopes)};
  Places places(seats, back);
  const View q = seats.q.view();
  AttendGradients d =
      held.keys ? attend_backward_into(q, held.keys->prepared(), answer, upstream, places.into, held.options, wanted)
                : attend_backward_into(q, seats.k.view(), seats.v.view(), answer, upstream, places.into, held.options,
                                       wanted);
  const auto give = [&](int input, Tensor& gradient) {
    if (gradient && back.needs(input)) back.add(input, std::move(gradient));
  };
  give(seats.q.input, places.own[0]);
  give(seats.k.input, places.own[1]);
  give(seats.v.input, places.own[2]);
  give(in_q, d.dq);
  give(in_k, d.dk);
  give(in_k, d.dprojections);
  give(in_v, d.dv);
  give(in_matrix, d.dmatrix);
  give(in_Wq, d.dquery_weights);
  give(in_Wk, d.dkey_weights);
  give(in_w, d.dhidden_weights);
  give(in_sigma, d.dbandwidths);
  give(in_scale, d.dscale);
  give(in_softcap, d.dsoftcap);
  give(in_slopes, d.dslopes);
  for (int i = 0; i < biases; ++i) give(in_biases + i, d.dbias[static_cast<std::size_t>(i)]);
}

// With `keys`, x.k is what their gradients are given to.
AttendedVariables run(const AttendVariables& x, const HeadSeats& seats, std::optional<PreparedVariables> keys,
                      const AttendOptions& options) {
  common_dtype("attend", {&x.q, &x.k, &x.v, &x.matrix, &x.query_weights, &x.key_weights, &x.hidden_weights,
                          &x.bandwidths, &x.scale, &x.softcap, &x.slopes});
  for (const Variable& bias : x.biases) common_dtype("attend", {&x.q, &bias});
  check_mask(x, options.mask);
  if (options.want_weights || options.want_mass || options.want_top > 0 || options.want_effective ||
      options.want_rows || options.want_scores != ScoreStage::none || options.want_partial || options.out_dtype) {
    throw OptionError("attend: on the tape there are out, lse and entropy; ask attend for other statistics");
  }
  const std::vector<Variable> inputs = inputs_of(x);
  Held held{x, seats, std::move(keys), options, {}, {}, {}};
  if (x.scale) held.options.scale = number_of(x.scale, "scale");
  if (x.softcap) held.options.softcap = number_of(x.softcap, "softcap");
  held.options.want_backward = is_recorded(inputs);
  Tensor out;
  MutableView place;
  if (seats.q.heads > 0) {
    held.out = {.heads = seats.q.heads, .width = seats.v.width};
    out = Tensor::uninitialized({x.q.extent(0), x.q.extent(1), seats.q.heads * seats.v.width}, x.q.dtype());
    place = held.out.seen(out.view());
  }
  const View q = seats.q.view();
  held.answer = held.keys ? attend_at(q, held.keys->prepared(), place, held.options)
                          : attend_at(q, seats.k.view(), seats.v.view(), place, held.options);
  if (!out) out = std::move(held.answer.out);

  std::vector<Variable> values = {Variable(std::move(out))};
  held.out.variable = values[0].detach();
  if (options.want_lse) values.emplace_back(std::move(held.answer.lse));
  if (options.want_entropy) {
    values.emplace_back(std::move(held.answer.entropy));
    held.entropy = values.back().detach();
  }
  values = record("attend", values, inputs, [held = std::move(held)](Backward& back) { attend_back(held, back); });
  AttendedVariables result{values[0], {}, {}};
  std::size_t next = 1;
  if (options.want_lse) result.lse = values[next++];
  if (options.want_entropy) result.entropy = values[next];
  return result;
}

void refuse_any(std::initializer_list<const Variable*> variables, const char* what) {
  for (const Variable* variable : variables) {
    if (*variable) throw OptionError(what);
  }
}

// What asks give their gradients of additive's keys to: a variable in the shape of the projections, which are held
// elsewhere.
Variable projections_of(const AttendVariables& x, const HeadSeat& seat, const Prepared& keys) {
  const Variable nothing(Tensor(Shape{}, x.k.dtype()));
  const View shown(nothing.value().data(), x.k.dtype(), projections_shape(keys), Strides{});
  return record("prepare", nothing.seen_as(shown), {x.k, x.key_weights}, [x, seat, keys](Backward& back) {
    PrepareGradients d = prepare_backward(keys, back.upstream(), {.k = back.needs(0), .score = back.needs(1)});
    if (d.dkey_weights) back.add(1, std::move(d.dkey_weights));
    if (!d.dk) return;
    if (seat.heads > 0) {
      Tensor dx(seat.variable.shape(), seat.variable.dtype());
      copy_into(d.dk, seat.seen(dx.view()));
      d.dk = std::move(dx);
    }
    back.add(0, std::move(d.dk));
  });
}

// The same for keys that nobody has prepared.
AttendedVariables run(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout,
                      const AttendOptions& options) {
  AttendOptions with = options;
  with.score = with_variables(x, options.score);
  return run(x, seats_of(op, x, layout), std::nullopt, with);
}

// The variables that asks give their gradients to.
AttendVariables asked_of(const AttendVariables& x, const HeadSeats& seats, const Prepared& keys) {
  AttendVariables asked = x;
  if (keys.score().kind == Score::Kind::additive) {
    asked.k = projections_of(x, seats.k, keys);
    asked.key_weights = {};
    asked.v = seats.v.variable;
  }
  return asked;
}

}  // namespace

AttendedVariables attend(const AttendVariables& x, const AttendOptions& options) {
  return run("attend", x, std::nullopt, options);
}

Variable attend(const Variable& q, const Variable& k, const Variable& v, const AttendOptions& options) {
  return attend({.q = q, .k = k, .v = v}, options).out;
}

AttendedVariables attend_heads(const AttendVariables& x, const HeadLayout& layout, const AttendOptions& options) {
  return run("attend_heads", x, layout, options);
}

PreparedVariables::PreparedVariables(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout,
                                     const Score& score, View valid_lens)
    : given_(x), layout_(layout) {
  const HeadSeats seats = key_seats_of(op, x, layout);
  refuse_any({&x.q, &x.scale, &x.softcap, &x.slopes}, "prepare: q, scale, softcap and slopes are given with each ask");
  if (!x.biases.empty()) throw OptionError("prepare: biases are given with each ask");
  common_dtype("prepare", {&x.k, &x.v, &x.matrix, &x.query_weights, &x.key_weights, &x.hidden_weights, &x.bandwidths});
  prepared_ = qkv::prepare(seats.k.view(), seats.v.view(), with_variables(x, score), valid_lens);
  asked_ = asked_of(x, seats, prepared_);
}

PreparedVariables prepare(const AttendVariables& x, const Score& score, View valid_lens) {
  return {"prepare", x, std::nullopt, score, valid_lens};
}

PreparedVariables prepare_heads(const AttendVariables& x, const HeadLayout& layout, const Score& score,
                                View valid_lens) {
  return {"prepare_heads", x, layout, score, valid_lens};
}

AttendedVariables attend(const AttendVariables& ask, const PreparedVariables& keys, const AttendOptions& options) {
  refuse_any({&ask.k, &ask.v, &ask.matrix, &ask.query_weights, &ask.key_weights, &ask.hidden_weights, &ask.bandwidths},
             "attend: keys, values and what their score carries were given to prepare");
  AttendVariables x = keys.asked_;
  x.q = ask.q;
  x.scale = ask.scale;
  x.softcap = ask.softcap;
  x.biases = ask.biases;
  x.slopes = ask.slopes;
  if (!keys.layout_) return run(x, seats_of("attend", x, std::nullopt), keys, options);
  AttendVariables given = keys.given_;
  given.q = ask.q;
  HeadSeats seats = seats_of("attend", given, keys.layout_);
  if (!x.k.is_same_as(given.k)) {  // additive: gradients of keys go to their projections, those of values as before
    seats.k = {x.k, in_k};
    seats.v.input = in_v;
  }
  return run(x, seats, keys, options);
}

}  // namespace qkv
