// rows of this rank, b samples, n query heads, g key-value groups, d and dv channels.
#include "megatron/ops/context_parallel_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/split_with_sizes.h>

#include "megatron/base/error.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/ops/head_exchange.h"
#include "megatron/ops/tensor_parallel_mappings.h"

namespace megatron {
namespace {

/// attend_to_sequences() where this rank has every row.
at::Tensor attend_to_all(const AttentionInputs& inputs, const AttentionOptions& options,
                         const SequencePlacement& placement) {
  return attend_to_sequences(inputs, options, placement, {{0, placement.length}});
}

at::Tensor gathered_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                              const ContextParallelism& context) {
  const SequencePlacement& placement = context.placement;
  const auto whole = [&](const at::Tensor& x, const char* what) {
    return reordered_rows(gather_from_sequence_parallel_region(x.contiguous(), context.axis, what),
                          placement.row_of);
  };
  return attend_to_sequences({inputs.q, whole(inputs.k, "keys"), whole(inputs.v, "values")},
                             options, placement,
                             placement.runs_of[static_cast<std::size_t>(context.axis.rank)]);
}

/// Calls attend(inputs, options) for this rank's share of the heads and the rows of all ranks of
/// the axis, which lie rank by rank, and exchanges the result back.
template <class Attend>
at::Tensor attend_by_heads(const AttentionInputs& inputs, AttentionOptions options,
                           const Axis& axis, const Attend& attend) {
  const std::int64_t ranks = axis.size, heads = inputs.q.size(2), groups = inputs.k.size(2);
  MEGATRON_CHECK(heads % ranks == 0 && (groups % ranks == 0 || ranks % groups == 0), heads,
                 " heads in ", groups, " groups cannot be divided over ", axis.name, "=", ranks);
  const HeadExchange exchange(axis, inputs.q.size(0));
  // Ranks that share a group each get a copy of it.
  const auto for_ranks = [&](const at::Tensor& x) {
    return groups < ranks ? x.repeat_interleave(ranks / groups, 2) : x;
  };
  const std::int64_t own = heads / ranks, first = axis.rank * own;
  options.first_head += first;
  if (options.alibi_slopes.defined())
    options.alibi_slopes = options.alibi_slopes.narrow(0, first, own);
  for (at::Tensor* x : {&options.sinks, &options.max_scores})
    if (x->defined()) *x = x->narrow(0, first, own);
  const AttentionInputs mine{exchange.to_heads(inputs.q, "queries"),
                             exchange.to_heads(for_ranks(inputs.k), "keys"),
                             exchange.to_heads(for_ranks(inputs.v), "values")};
  return exchange.to_rows(attend(mine, options), "attention");
}

at::Tensor ulysses_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                             const ContextParallelism& context) {
  const SequencePlacement& placement = context.placement;
  const auto ordered = [&](const at::Tensor& x) { return reordered_rows(x, placement.row_of); };
  return attend_by_heads(
      inputs, options, context.axis, [&](const AttentionInputs& x, const AttentionOptions& mine) {
        const at::Tensor out =
            attend_to_all({ordered(x.q), ordered(x.k), ordered(x.v)}, mine, placement);
        return reordered_rows(out, placement.order);
      });
}

at::Tensor hierarchical_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  const ContextParallelism& context) {
  MEGATRON_CHECK(context.a2a != nullptr && context.p2p != nullptr &&
                     context.a2a->size * context.p2p->size == context.axis.size,
                 "a2a+p2p needs two levels whose sizes multiply to cp=", context.axis.size);
  // A group of neighbours has the rows of its ranks, rank by rank.
  const SequencePlacement groups{
      .length = context.placement.length,
      .runs_of = join_neighbours(context.placement.runs_of, context.a2a->size),
      .cu_seqlens = context.placement.cu_seqlens};
  return attend_by_heads(
      inputs, options, *context.a2a, [&](const AttentionInputs& x, const AttentionOptions& mine) {
        return ring_attention(
            x, mine, {.axis = *context.p2p, .placement = groups, .activities = context.activities});
      });
}

}  // namespace

at::Tensor attend_to_sequences(const AttentionInputs& inputs, const AttentionOptions& options,
                               const SequencePlacement& placement,
                               const std::vector<PositionRun>& runs) {
  const std::vector<SequencePiece> pieces = pieces_of(runs, placement);
  if (pieces.empty())
    return inputs.q.new_empty({0, inputs.q.size(1), inputs.q.size(2) * inputs.v.size(3)});
  bool has_all = inputs.q.size(0) == placement.length;  // each piece is a sequence
  std::vector<std::int64_t> counts;
  for (const SequencePiece& piece : pieces) {
    counts.push_back(piece.positions.count);
    has_all = has_all && counts.back() == rows_of_sequence(placement, piece.sequence).count;
  }
  // The gradients of a split are joined by one copy; those of slices are added up, each as long as
  // all rows.
  const auto split = [&](const at::Tensor& x) { return at::split_with_sizes(x, counts); };
  const std::vector<at::Tensor> q = split(inputs.q),
                                k = has_all ? split(inputs.k) : std::vector<at::Tensor>(),
                                v = has_all ? split(inputs.v) : std::vector<at::Tensor>();
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const PositionRun keys = rows_of_sequence(placement, pieces[i].sequence);
    out.push_back(core_attention(q[i], has_all ? k[i] : inputs.k.narrow(0, keys.first, keys.count),
                                 has_all ? v[i] : inputs.v.narrow(0, keys.first, keys.count),
                                 options_of(pieces[i], 0, placement, options))
                      .out);
  }
  return out.size() == 1 ? out.front() : at::cat(out);
}

AttentionOptions options_of(const SequencePiece& piece, std::int64_t k_start,
                            const SequencePlacement& placement, AttentionOptions options) {
  options.q_start = piece.positions.first;
  options.k_start = k_start;
  const std::int64_t length = placement.padded_length > 0
                                  ? placement.padded_length
                                  : rows_of_sequence(placement, piece.sequence).count;
  options.total_q = options.total_k = length;
  if (at::Tensor& bias = options.distance_bias; bias.defined() && bias.size(1) != 2 * length - 1)
    bias = bias.narrow(1, (bias.size(1) + 1) / 2 - length, 2 * length - 1);  // of a longer sequence
  if (placement.is_packed() && options.dropout.active())
    options.dropout.sample_ordinals = options.dropout.sample_ordinals.narrow(0, piece.sequence, 1);
  return options;
}

at::Tensor context_parallel_attention(const AttentionInputs& inputs,
                                      const AttentionOptions& options,
                                      const ContextParallelism& context) {
  MEGATRON_CHECK(inputs.q.size(0) == context.placement.rows_of(context.axis.rank),
                 "attention over ", inputs.q.size(0), " rows, the placement has ",
                 context.placement.rows_of(context.axis.rank));
  if (context.axis.size == 1) return attend_to_all(inputs, options, context.placement);
  switch (context.comm_type) {
    case CpCommType::p2p:
      return ring_attention(inputs, options, context);
    case CpCommType::all_gather:
      return gathered_attention(inputs, options, context);
    case CpCommType::a2a:
      return ulysses_attention(inputs, options, context);
    case CpCommType::a2a_p2p:
      return hierarchical_attention(inputs, options, context);
  }
  throw InternalError("an unknown --cp-comm-type");
}

}  // namespace megatron
