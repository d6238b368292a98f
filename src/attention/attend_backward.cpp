// attention/attend_backward.cpp: checks what attend_backward is given, and runs it.
#include <qkv/attend_backward.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <variant>

#include <qkv/error.h>

#include "attention/ask.h"
#include "attention/backward.h"
#include "attention/gradient_forms.h"
#include "attention/load.h"
#include "attention/projection_gradients.h"
#include "attention/recall.h"
#include "base/divide_up.h"
#include "base/message.h"
#include "base/numbers.h"
#include "base/parallel.h"
#include "tensor/broadcast.h"

namespace qkv {
namespace {

constexpr const char* operation = "attend_backward";

// Keys of a task: their sums and rows are about what the second-level cache holds, and packing queries anew for every
// range costs less than 1 %.
constexpr std::int64_t range_keys = 576;

// Rows of all heads whose states are made by one task.
constexpr std::int64_t rows_at_once = 64;

MutableView rank4_of(const MutableView& view) {
  const View seen = rank4(view);
  return MutableView(view.data(), view.dtype(), seen.shape(), seen.strides());
}

template <class T>
class Caller {
 public:
  Caller(const Problem& problem, Scoring& scoring, bool prepared, const AttendAnswer& answer,
         const AttendUpstream& upstream, const AttendOptions& options, const AttendWanted& wanted)
      : p_(problem),
        scoring_(scoring),
        gathers_(prepared && problem.score.kind == Score::Kind::additive),
        answer_(answer),
        upstream_(upstream),
        options_(options),
        wanted_(wanted),
        strategy_(choose_strategy<T>(problem, scoring, Pass::backward)) {}

  AttendGradients run(const AttendGradientsInto& into) {
    View dout = given(upstream_.out, {p_.Tq, p_.Dv}, "upstream.out");
    const Tensor nothing(Shape{p_.Dv}, p_.compute);
    if (!dout) dout = View(View(nothing).data(), p_.compute, Shape{p_.B, p_.H, p_.Tq, p_.Dv}, Strides{0, 0, 0, 1});
    RowStates<T> rows;
    set_rows(rows, dout);
    AttendGradients to;
    GradientTask<T> task{p_, strategy_, rows, dout, chosen()};
    const bool pairs =
        wanted_.q || wanted_.k || wanted_.score || wanted_.scale || wanted_.softcap || wanted_.bias || wanted_.slopes;
    task.needs_slopes = pairs && !p_.weighing.exclusion_only;
    task.needs_softcap = wanted_.softcap;
    task.needs_squares = wanted_.score;
    task.needs_slopes_of_alibi = wanted_.slopes && !p_.mask.slopes().empty();
    const std::int64_t width =
        task.needs_slopes ? std::max(scoring_.usual.product_width, scoring_.exact.product_width) : 0;
    const std::int64_t strip = strategy_.panel->strip;  // two vectors: what additive's kernel takes at once
    task.product_width = divide_up(width, strip) * strip;
    // Rows whose distance is a power of two would throw each other out of the first-level cache.
    if (p_.score.kind == Score::Kind::additive) task.product_width += strip;
    task.range_keys = divide_up(range_keys, strategy_.block_keys) * strategy_.block_keys;
    add_biases(task, to);

    const double factor = score_factor(p_.weighing);
    const bool direct = task.needs_slopes && takes_queries_as_they_are(p_.score) && !wanted_.scale;
    const bool something = p_.Tq > 0 && p_.Tk > 0;
    const std::int64_t key_heads = gradient_key_heads(p_, scoring_);
    const ProductPlace dq_place =
        place_for(wanted_.q, shape_of(p_.q), {into.dq, into.add_dq}, direct && something, to.dq, "dq");
    const ProductPlace dk_place =
        gathers_ ? place_for(wanted_.k, Shape{p_.B, key_heads, p_.Tk, width}, {into.dk, into.add_dk},
                             task.needs_slopes && something, to.dprojections, "dk (of projections)")
                 : place_for(wanted_.k, shape_of(p_.k), {into.dk, into.add_dk}, direct && something, to.dk, "dk");
    ProductGradients products;
    products.dv = place_for(wanted_.v, shape_of(p_.v), {into.dv, into.add_dv}, something, to.dv, "dv");
    FormTensor dq, dk;  // of what is compared
    products.factor = factor;
    if (direct) {
      products.dq = dq_place;
      products.dk = dk_place;
      products.factor *= scoring_.usual.scale;
      if (!wanted_.bias && !wanted_.softcap && !wanted_.slopes) {  // nobody else wants slopes
        task.slope_factor = products.factor;
        products.factor = 1;
      }
    } else if (task.needs_slopes) {
      dq = FormTensor(Shape{p_.B, p_.H, p_.Tq, width}, p_.compute);
      products.dq = {dq.view()};
      if (gathers_) {
        products.dk = dk_place;
      } else {
        dk = FormTensor(Shape{p_.B, key_heads, p_.Tk, width}, p_.compute);
        products.dk = {dk.view()};
      }
    }
    const std::vector<PairSums> sums = backward(task, products);
    finish_scalars(sums, factor, to);
    for (Tensor& bias : to.dbias) {
      for (T& value : bias.values<T>()) value *= static_cast<T>(factor);
    }
    make_parameters(to);
    if (task.needs_slopes && !direct && something) {
      const MutableView dk_to = gathers_ ? MutableView() : dk_place.rows;
      finish_gradients({p_, scoring_, dq.view(), dk.view(), dq_place.rows, dk_to, sums, factor, wanted_, to});
    }
    return to;
  }

 private:
  // In the rank of the queries.
  Shape shape_of(const View& rank4) const {
    std::vector<std::int64_t> extents = {rank4.extent(2), rank4.extent(3)};
    if (p_.rank > 3) extents.insert(extents.begin(), rank4.extent(1));
    if (p_.rank > 2) extents.insert(extents.begin(), rank4.extent(0));
    return Shape(extents);
  }

  // For a gradient of this shape: in the caller's memory or in a tensor of its own. Zeros at first, unless it will be
  // written whole or added to what is there.
  ProductPlace place_for(bool wanted, const Shape& shape, const ProductPlace& given, bool whole, Tensor& own,
                         const char* name) const {
    if (!wanted) return {};
    if (!given.rows) {
      own = whole ? Tensor::uninitialized(shape, p_.compute) : Tensor(shape, p_.compute);
      return {rank4_of(own)};
    }
    const MutableView& rows = given.rows;
    if (!(rows.shape() == shape) || rows.dtype() != p_.compute ||
        (shape.back() > 1 && rows.stride(rows.rank() - 1) != 1)) {
      throw ShapeError(message(operation, ": ", name, " of shape ", rows.shape().text(), " and ", name_of(rows.dtype()),
                               " must be ", shape.text(), " and ", name_of(p_.compute), ", its last axis dense"));
    }
    const MutableView place = rank4_of(rows);
    if (whole || given.add) return {place, given.add};
    const std::vector<T> zeros(static_cast<std::size_t>(place.extent(3)), T(0));
    for (std::int64_t i = 0; i < place.extent(0) * place.extent(1) * place.extent(2); ++i) {
      const std::int64_t row = i % place.extent(2), head = i / place.extent(2);
      const RowOf at{head / place.extent(1), head % place.extent(1), row};
      store_row(zeros.data(), place.extent(3), T(1), place, qkv::place(place, at), place.stride(3));
    }
    return {place};
  }

  View given(const View& view, std::initializer_list<std::int64_t> last, const char* name) const {
    return view ? with_heads(view, last, p_, name) : View();
  }

  View chosen() const {
    if (p_.weighing.hard) {
      const View index = required(answer_.index, "index", {p_.Tq}, p_);
      Strides strides = index.strides();
      strides[3] = 1;
      return View(index.data(), index.dtype(), Shape{p_.B, p_.H, p_.Tq, 1}, strides);
    }
    if (p_.weighing.selected == 0) return {};
    return required(answer_.chosen, "chosen", {p_.Tq, p_.weighing.selected}, p_);
  }

  void set_rows(RowStates<T>& rows, const View& dout) const {
    const Weighing& w = p_.weighing;
    const bool linear = w.family == Family::linear;
    const auto count = static_cast<std::size_t>(p_.B * p_.H * p_.Tq);
    const bool stateless = !has_state(w);
    const View state = stateless ? View() : required(answer_.state, "state", {p_.Tq}, p_);
    const View out = stateless ? View() : required(answer_.out, "out", {p_.Tq, p_.Dv}, p_);
    const View dlse = given(upstream_.lse, {p_.Tq}, "upstream.lse");
    const View dentropy = given(upstream_.entropy, {p_.Tq}, "upstream.entropy");
    View entropy;
    if (dentropy) entropy = required(answer_.entropy, "entropy", {p_.Tq}, p_);
    if ((dlse || dentropy) && stateless) {
      throw OptionError(message(operation, ": this weighing has neither log-sum-exp nor entropy"));
    }
    rows.reference.assign(count, reference_without_state<T>(w));
    rows.added.assign(count, T(0));
    if (linear) rows.multiplier.assign(count, T(1));
    if (dentropy) rows.entropy.assign(count, T(0));
    if (stateless) return;
    const auto set_row = [&](const RowOf& row, RowReader<T>& outs, RowReader<T>& upstreams) {
      const auto at = static_cast<std::size_t>((row.batch * p_.H + row.head) * p_.Tq + row.query);
      const auto number = [&](const View& view) {
        T value = 0;
        if (view) load_row(view, place(view, row), 1, 1, &value);
        return value;
      };
      const T state_of_row = number(state);
      rows.reference[at] = reference_of(state_of_row, answer_.state_kind, w);
      if (linear) rows.multiplier[at] = rows.reference[at];
      if (is_empty(state_of_row, answer_.state_kind)) return;
      const auto delta = static_cast<double>(
          strategy_.rows->product(outs.row(place(out, row)), upstreams.row(place(dout, row)), static_cast<int>(p_.Dv)));
      const T dH = number(dentropy);
      const double of_entropy = dH != T(0) ? static_cast<double>(dH) * static_cast<double>(number(entropy)) : 0;
      rows.added[at] = static_cast<T>(static_cast<double>(number(dlse)) - delta - of_entropy);
      if (dentropy) rows.entropy[at] = dH;
    };
    // In the order of memory: heads that lie side by side, as a layer has them, are read together.
    const bool side_by_side = out.stride(1) < out.stride(2);
    const std::int64_t pieces = divide_up(p_.Tq, rows_at_once);
    parallel_for(p_.B * pieces, p_.threads, [&](std::int64_t task) {
      RowReader<T> outs(out), upstreams(dout);
      const std::int64_t b = task / pieces, first = task % pieces * rows_at_once;
      const std::int64_t queries = std::min(rows_at_once, p_.Tq - first);
      for (std::int64_t n = 0; n < queries * p_.H; ++n) {
        set_row(side_by_side ? RowOf{b, n % p_.H, first + n / p_.H} : RowOf{b, n / queries, first + n % queries}, outs,
                upstreams);
      }
    });
  }

  void add_biases(GradientTask<T>& task, AttendGradients& to) const {
    if (!wanted_.bias) return;
    for (const Mask::Part& part : options_.mask.parts()) {
      if (const auto* bias = std::get_if<mask_part::Bias>(&part)) {
        to.dbias.emplace_back(bias->bias.shape(), p_.compute);
      }
    }
    for (Tensor& gradient : to.dbias) {
      if (task.needs_slopes) task.biases.push_back(broadcast_to(gradient.view(), {p_.B, p_.H, p_.Tq, p_.Tk}));
    }
  }

  void finish_scalars(const std::vector<PairSums>& sums, double factor, AttendGradients& to) const {
    if (wanted_.softcap) {
      to.dsoftcap = Tensor(Shape{}, p_.compute);
      double sum = 0;
      for (const PairSums& head : sums) sum += head.softcap;
      to.dsoftcap.view().as<T>()[0] = static_cast<T>(sum * factor);
    }
    if (!wanted_.slopes) return;
    to.dslopes = Tensor(Shape{p_.H}, p_.compute);
    for (std::int64_t h = 0; h < p_.H; ++h) {
      double sum = 0;
      for (std::size_t i = static_cast<std::size_t>(h); i < sums.size(); i += static_cast<std::size_t>(p_.H)) {
        sum += sums[i].slope;
      }
      to.dslopes.view().as<T>()[h] = static_cast<T>(sum * factor);
    }
  }

  // Zeros, to which the gradients are added.
  void make_parameters(AttendGradients& to) const {
    const auto make = [&](bool wanted, Tensor& tensor, const Shape& shape) {
      if (wanted) tensor = Tensor(shape, p_.compute);
    };
    const Score& score = p_.score;
    make(wanted_.scale, to.dscale, Shape{});
    make(wanted_.score && score.kind == Score::Kind::bilinear, to.dmatrix, score.matrix.shape());
    const bool additive = wanted_.score && score.kind == Score::Kind::additive;
    make(additive, to.dquery_weights, score.query_weights.shape());
    make(additive && !gathers_, to.dkey_weights, score.key_weights.shape());
    make(additive, to.dhidden_weights, score.hidden_weights.shape());
    make(wanted_.score && score.is_kernel() && score.kind != Score::Kind::constant, to.dbandwidths,
         score.bandwidths ? score.bandwidths.shape() : Shape{1});
  }

  const Problem& p_;
  const Scoring& scoring_;
  bool gathers_;  // gradients of projections, from all who ask prepared keys
  const AttendAnswer& answer_;
  const AttendUpstream& upstream_;
  const AttendOptions& options_;
  const AttendWanted& wanted_;
  Strategy<T> strategy_;
};

// `prepared`: the keys' form, or null.
AttendGradients run(View q, View k, View v, const std::shared_ptr<const KeyForm>& prepared, const AttendAnswer& answer,
                    const AttendUpstream& upstream, const AttendGradientsInto& into, const AttendOptions& options,
                    const AttendWanted& wanted) {
  const Problem problem = check_again(q, k, v, options, operation);
  Scoring scoring = prepared ? make_scoring(problem, prepared) : make_scoring(problem);
  prepare_products(problem, scoring);
  const bool given = prepared != nullptr;
  if (problem.compute == Dtype::float64) {
    return Caller<double>(problem, scoring, given, answer, upstream, options, wanted).run(into);
  }
  return Caller<float>(problem, scoring, given, answer, upstream, options, wanted).run(into);
}

}  // namespace

AttendGradients attend_backward(View q, View k, View v, const AttendAnswer& answer, const AttendUpstream& upstream,
                                const AttendOptions& options, const AttendWanted& wanted) {
  return run(q, k, v, nullptr, answer, upstream, {}, options, wanted);
}

AttendGradients attend_backward_into(View q, View k, View v, const AttendAnswer& answer, const AttendUpstream& upstream,
                                     const AttendGradientsInto& into, const AttendOptions& options,
                                     const AttendWanted& wanted) {
  return run(q, k, v, nullptr, answer, upstream, into, options, wanted);
}

AttendGradients attend_backward_into(View q, const Prepared& keys, const AttendAnswer& answer,
                                     const AttendUpstream& upstream, const AttendGradientsInto& into,
                                     const AttendOptions& options, const AttendWanted& wanted) {
  return run(q, keys.keys(), keys.values(), keys.form(), answer, upstream, into,
             with_score(options, keys.score(), operation), wanted);
}

Shape projections_shape(const Prepared& keys) {
  const ScoreParameters& parameters = keys.form()->parameters;
  if (keys.score().kind != Score::Kind::additive) return {};
  const View k = rank4(keys.keys());
  const std::int64_t heads = parameters.heads > 1 ? parameters.heads : k.extent(1);
  return Shape{k.extent(0), heads, k.extent(2), parameters.hidden_width()};
}

PrepareGradients prepare_backward(const Prepared& keys, View dprojections, const AttendWanted& wanted) {
  constexpr const char* name = "prepare_backward";
  const KeyForm& form = *keys.form();
  if (keys.score().kind != Score::Kind::additive) {
    throw OptionError(message(name, ": only additive projects its keys; asks of other scores give dk itself"));
  }
  if (!(dprojections.shape() == projections_shape(keys)) || dprojections.dtype() != form.compute) {
    throw ShapeError(message(name, ": dprojections of shape ", dprojections.shape().text(), " and ",
                             name_of(dprojections.dtype()), " must be ", projections_shape(keys).text(), " and ",
                             name_of(form.compute)));
  }
  PrepareGradients to;
  if (wanted.k) to.dk = Tensor(keys.keys().shape(), form.compute);
  if (wanted.score) to.dkey_weights = Tensor(keys.score().key_weights.shape(), form.compute);
  const Tensor copy = dprojections.is_dense() ? Tensor() : Tensor::copy_of(dprojections);
  project_keys_back({rank4(keys.keys()), copy ? View(copy) : dprojections, form.parameters,
                     wanted.k ? rank4_of(to.dk) : MutableView(), wanted.score ? &to.dkey_weights : nullptr,
                     resolve_threads(0, name)});
  return to;
}

}  // namespace qkv
