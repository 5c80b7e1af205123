// Ring attention. Step t of a pass computes with the keys and values of rank (r − t) mod size while
// they travel on to rank r + 1. Attention is computed for each piece of queries over each piece of
// keys. A piece is contiguous in its sequence.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "megatron/base/monotonic_clock.h"
#include "megatron/ops/context_parallel_attention.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/parallel/collectives.h"
#include "megatron/schedules/context_exchange.h"

namespace megatron {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Two tensors in one buffer, so that they travel in one message.
struct Pair {
  at::Tensor buffer, first, second;

  Pair() = default;
  Pair(at::IntArrayRef first_shape, at::IntArrayRef second_shape, const at::TensorOptions& type) {
    const std::int64_t count = c10::multiply_integers(first_shape),
                       others = c10::multiply_integers(second_shape);
    buffer = at::empty({count + others}, type);
    first = buffer.narrow(0, 0, count).view(first_shape);
    second = buffer.narrow(0, count, others).view(second_shape);
  }
};

/// Messages from each rank of the axis to the next one.
class Ring {
 public:
  explicit Ring(const Axis& axis) : axis_(axis) {}
  /// Returns the rank whose keys are here in step `step`.
  std::int64_t source(std::int64_t step) const { return ring_source(axis_.rank, step, axis_.size); }
  std::int64_t size() const { return axis_.size; }
  std::pair<PendingWork, PendingWork> exchange(const at::Tensor& out, const at::Tensor& in,
                                               const char* what) const {
    return exchange_around_ring(axis_, out, in, what);
  }
  PendingWork send(const at::Tensor& x, const char* what) const {
    return axis_.comm->start_send(x, (axis_.rank + 1) % axis_.size, what);
  }
  PendingWork receive(const at::Tensor& x, const char* what) const {
    return axis_.comm->start_recv(x, source(1), what);
  }

 private:
  const Axis& axis_;
};

/// Calls body(rows of queries, rows of keys, options) for each pair of pieces of which a query sees
/// a key. Returns the number of pairs. The pieces lie in ascending order of sequences.
template <class Body>
std::int64_t for_visible_pieces(const std::vector<SequencePiece>& queries,
                                const std::vector<SequencePiece>& keys,
                                const AttentionOptions& options, const SequencePlacement& placement,
                                const Body& body) {
  const PositionMask mask{
      .causal = options.causal, .window = options.window, .chunk = options.chunk};
  std::int64_t num_visible = 0;
  for (const SequencePiece& mine : queries) {
    for (const SequencePiece& seen :
         std::ranges::equal_range(keys, mine.sequence, {}, &SequencePiece::sequence)) {
      if (!sees(mine.positions, seen.positions, mask)) continue;
      body(PositionRun{mine.row, mine.positions.count}, PositionRun{seen.row, seen.positions.count},
           options_of(mine, seen.positions.first, placement, options));
      ++num_visible;
    }
  }
  return num_visible;
}

/// Returns the time when the work queued so far on the device of `x` is done.
double time_after_queued(const at::Tensor& x) {
  if (!x.is_cpu())
    c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).synchronize();
  return monotonic_seconds();
}

/// Computes the attention of step `step` of a ring: calls `body` as for_visible_pieces() does, and
/// records the time when the rank's activities are recorded. `q` holds the queries.
template <class Body>
void attend_in_step(const std::vector<std::vector<SequencePiece>>& pieces, RingStep step,
                    const at::Tensor& q, const AttentionOptions& options,
                    const ContextParallelism& context, const Body& body) {
  const bool is_recorded = context.activities != nullptr && context.activities->is_on();
  if (is_recorded) step.begin_s = time_after_queued(q);
  step.num_blocks = for_visible_pieces(pieces[static_cast<std::size_t>(context.axis.rank)],
                                       pieces[static_cast<std::size_t>(step.source)], options,
                                       context.placement, body);
  if (!is_recorded) return;
  step.end_s = time_after_queued(q);
  step.axis = context.axis.name;
  context.activities->add(std::move(step));
}

/// The pieces of every rank, in ascending order of sequences.
std::vector<std::vector<SequencePiece>> pieces_of_ranks(const SequencePlacement& placement) {
  std::vector<std::vector<SequencePiece>> pieces;
  for (const auto& runs : placement.runs_of) {
    pieces.push_back(pieces_of(runs, placement));
    std::ranges::stable_sort(pieces.back(), {}, &SequencePiece::sequence);
  }
  return pieces;
}

at::Tensor rows_of(const at::Tensor& x, const PositionRun& rows) {
  return x.narrow(0, rows.first, rows.count);
}

/// The result of attention to the keys so far.
class MergedAttention {
 public:
  /// `wide` is the type of sums.
  MergedAttention(const at::Tensor& q, std::int64_t channels, c10::ScalarType wide)
      : out_(at::zeros({q.size(0), q.size(1), q.size(2), channels}, q.options().dtype(wide))),
        lse_(at::full({q.size(1), q.size(2), q.size(0)}, kNothing, q.options().dtype(wide))) {}

  /// Adds the result of attention of `rows` to further keys (Milakov and Gimelshein 2018).
  void add(const PositionRun& rows, const AttentionResult& part) {
    at::Tensor out = rows_of(out_, rows), lse = lse_.narrow(2, rows.first, rows.count);
    const at::Tensor both = at::logaddexp(lse, part.lse),
                     shift = both.masked_fill(both == kNothing, 0.0);
    const auto weight = [&](const at::Tensor& of) {
      return (of - shift).exp_().permute({2, 0, 1}).unsqueeze(3);
    };
    out.mul_(weight(lse)).add_(part.out.view(out.sizes()) * weight(part.lse));
    lse.copy_(both);
  }

  /// Adds the sinks [n], after all keys.
  void add_sinks(const at::Tensor& sinks) {
    const at::Tensor both = at::logaddexp(lse_, sinks.to(lse_.scalar_type()).unsqueeze(1));
    out_.mul_((lse_ - both).exp_().permute({2, 0, 1}).unsqueeze(3));
    lse_ = both;
  }

  AttentionResult result(c10::ScalarType type) const {
    return {out_.to(type).view({out_.size(0), out_.size(1), -1}), lse_};
  }

 private:
  at::Tensor out_, lse_;
};

AttentionResult ring_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                             const at::Tensor& sinks, const ContextParallelism& context) {
  const auto& [q, k, v] = inputs;
  const Ring ring(context.axis);
  const auto pieces = pieces_of_ranks(context.placement);
  MergedAttention merged(q, v.size(3), compute_type(q.scalar_type()));
  Pair here(k.sizes(), v.sizes(), k.options()), next;
  here.first.copy_(k);
  here.second.copy_(v);
  for (std::int64_t step = 0; step < ring.size(); ++step) {
    const bool passes_on = step + 1 < ring.size();
    PendingWork sent, received;
    if (passes_on) {
      next = Pair(k.sizes(), v.sizes(), k.options());
      std::tie(sent, received) = ring.exchange(here.buffer, next.buffer, "keys and values");
    }
    attend_in_step(
        pieces, {.step = step, .source = ring.source(step)}, q, options, context,
        [&](const PositionRun& queries, const PositionRun& keys, const AttentionOptions& part) {
          merged.add(queries, attention_forward({rows_of(q, queries), rows_of(here.first, keys),
                                                 rows_of(here.second, keys)},
                                                part));
        });
    if (!passes_on) break;
    received->wait();
    sent->wait();
    std::swap(here, next);
  }
  if (sinks.defined()) merged.add_sinks(sinks);
  return merged.result(q.scalar_type());
}

AttentionInputs ring_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                              const AttentionResult& result, const AttentionOptions& options,
                              const ContextParallelism& context) {
  const auto& [q, k, v] = inputs;
  const Ring ring(context.axis);
  const auto pieces = pieces_of_ranks(context.placement);
  const auto wide = q.options().dtype(compute_type(q.scalar_type()));
  const at::Tensor dq = at::zeros(q.sizes(), wide);
  Pair here(k.sizes(), v.sizes(), k.options()), next;
  here.first.copy_(k);
  here.second.copy_(v);
  const auto zeros = [&] {
    Pair pair(k.sizes(), v.sizes(), wide);
    pair.buffer.zero_();
    return pair;
  };
  const char* const what = "gradients of keys and values";
  Pair earlier = zeros(), leaving;
  PendingWork returned;
  for (std::int64_t step = 0; step < ring.size(); ++step) {
    const bool passes_on = step + 1 < ring.size();
    // What the other ranks have added so far arrives while this rank computes. The previous rank
    // sends it before its next keys, so this receive is posted first.
    PendingWork sent, received, arriving;
    if (step > 0) arriving = ring.receive(earlier.buffer, what);
    if (passes_on) {
      next = Pair(k.sizes(), v.sizes(), k.options());
      std::tie(sent, received) = ring.exchange(here.buffer, next.buffer, "keys and values");
    }
    const Pair gradients = zeros();
    attend_in_step(
        pieces, {.is_backward = true, .step = step, .source = ring.source(step)}, q, options,
        context,
        [&](const PositionRun& queries, const PositionRun& keys, const AttentionOptions& part) {
          const AttentionInputs d = attention_backward(
              rows_of(dout, queries),
              {rows_of(q, queries), rows_of(here.first, keys), rows_of(here.second, keys)},
              {rows_of(result.out, queries),
               result.lse.narrow(2, queries.first, queries.count).contiguous()},
              part);
          rows_of(dq, queries).add_(d.q);
          rows_of(gradients.first, keys).add_(d.k);
          rows_of(gradients.second, keys).add_(d.v);
        });
    if (arriving) {
      arriving->wait();
      gradients.buffer.add_(earlier.buffer);
      returned->wait();  // the next rank posts this receive at the start of this step
    }
    leaving = gradients;
    returned = ring.send(leaving.buffer, what);
    if (!passes_on) break;
    received->wait();
    sent->wait();
    std::swap(here, next);
  }
  Pair gradients = zeros();  // of this rank's keys, from the last step of the next rank
  ring.receive(gradients.buffer, what)->wait();
  returned->wait();
  return {dq.to(q.scalar_type()), gradients.first.to(k.scalar_type()),
          gradients.second.to(v.scalar_type())};
}

}  // namespace

at::Tensor ring_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                          const ContextParallelism& context) {
  const at::Tensor& sinks = options.sinks;
  AttentionOptions plain = options;  // of a part of the keys
  plain.sinks = at::Tensor();
  Recording recording({.name = "RingAttentionBackward"}, {inputs.q, inputs.k, inputs.v, sinks});
  const auto [out, lse, top] = ring_forward(inputs, plain, sinks, context);
  plain.max_scores = at::Tensor();
  const auto backward = [plain, axis = context.axis, placement = context.placement,
                         activities = context.activities](BackwardPass& pass) -> Tensors {
    const Tensors& saved = pass.saved;
    const at::Tensor& dout = pass.gradients[0];
    const AttentionResult result{saved[3], saved[4]};
    const AttentionInputs d =
        ring_backward(dout, {saved[0], saved[1], saved[2]}, result, plain,
                      {.axis = axis, .placement = placement, .activities = activities});
    return {d.q, d.k, d.v,
            pass.needs_input[3] ? sink_gradient(dout, result, saved[5]) : at::Tensor()};
  };
  return recording.finish(out, {inputs.q, inputs.k, inputs.v, out, lse, sinks}, backward);
}

}  // namespace megatron
