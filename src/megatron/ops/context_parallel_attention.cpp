// s positions of the whole sequence, rows of this rank, b samples, n query heads, g key-value
// groups, d and dv channels.
#include "megatron/ops/context_parallel_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include "megatron/base/error.h"
#include "megatron/ops/row_exchange.h"
#include "megatron/ops/tensor_parallel_mappings.h"

namespace megatron {
namespace {

/// Orders rows of all ranks, which lie rank by rank, by position, and back.
struct RankOrder {
  explicit RankOrder(const SequencePlacement& placement, const at::Device& device) {
    std::vector<at::Tensor> positions;
    for (const auto& runs : placement.runs_of) positions.push_back(positions_of(runs));
    const at::Tensor all = at::cat(positions);
    by_rank = all.to(device);
    by_position = all.argsort().to(device);
  }
  at::Tensor by_position, by_rank;  ///< int64 [s]: the rows to take
};

/// Returns the options of queries from `first_query` on, over all keys of the sequence.
AttentionOptions whole_keys_options(AttentionOptions options, std::int64_t first_query,
                                    std::int64_t length) {
  options.q_start = first_query;
  options.k_start = 0;
  options.total_q = options.total_k = length;
  return options;
}

at::Tensor gathered_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                              const ContextParallelism& context) {
  const SequencePlacement& placement = context.placement;
  const RankOrder order(placement, inputs.q.device());
  const auto whole = [&](const at::Tensor& x, const char* what) {
    return at::index_select(
        gather_from_sequence_parallel_region(x.contiguous(), context.axis, what), 0,
        order.by_position);
  };
  const at::Tensor k = whole(inputs.k, "keys"), v = whole(inputs.v, "values");
  std::vector<at::Tensor> out;
  std::int64_t row = 0;
  for (const PositionRun& run : placement.runs_of[static_cast<std::size_t>(context.axis.rank)]) {
    out.push_back(core_attention(inputs.q.narrow(0, row, run.count), k, v,
                                 whole_keys_options(options, run.first, placement.length))
                      .out);
    row += run.count;
  }
  return at::cat(out);
}

/// Exchanges positions for heads: [rows, b, heads, d] → [s, b, heads / size, d], ordered by
/// position.
class HeadExchange {
 public:
  HeadExchange(const ContextParallelism& context, const RankOrder& order)
      : axis_(context.axis), order_(order) {
    for (std::int64_t rank = 0; rank < axis_.size; ++rank)
      rows_.push_back(context.placement.rows_of(rank));
    own_.assign(rows_.size(), rows_[static_cast<std::size_t>(axis_.rank)]);
  }

  at::Tensor to_heads(const at::Tensor& x, const char* what) const {
    const std::int64_t heads = x.size(2) / axis_.size;
    const at::Tensor parts = x.view({x.size(0), x.size(1), axis_.size, heads, x.size(3)})
                                 .permute({2, 0, 1, 3, 4})
                                 .reshape({axis_.size * x.size(0), x.size(1), heads, x.size(3)});
    return at::index_select(exchange_rows(axis_, parts, {.out = rows_, .in = own_}, what), 0,
                            order_.by_position);
  }

  /// The reverse, of [s, b, channels of this rank's heads] → [rows, b, channels of all].
  at::Tensor to_rows(const at::Tensor& x, const char* what) const {
    const at::Tensor parts = exchange_rows(axis_, at::index_select(x, 0, order_.by_rank),
                                           {.out = own_, .in = rows_}, what);
    const std::int64_t rows = own_.front();
    return parts.view({axis_.size, rows, x.size(1), x.size(2)})
        .permute({1, 2, 0, 3})
        .reshape({rows, x.size(1), axis_.size * x.size(2)});
  }

 private:
  const Axis& axis_;
  const RankOrder& order_;
  std::vector<std::int64_t> rows_, own_;  ///< of each rank; this rank's, once for each rank
};

at::Tensor ulysses_attention(const AttentionInputs& inputs, AttentionOptions options,
                             const ContextParallelism& context) {
  const std::int64_t ranks = context.axis.size, heads = inputs.q.size(2), groups = inputs.k.size(2);
  MEGATRON_CHECK(heads % ranks == 0 && (groups % ranks == 0 || ranks % groups == 0), heads,
                 " heads in ", groups, " groups over cp=", ranks);
  const RankOrder order(context.placement, inputs.q.device());
  const HeadExchange exchange(context, order);
  // Ranks that share a group each get a copy of it.
  const auto for_ranks = [&](const at::Tensor& x) {
    return groups < ranks ? x.repeat_interleave(ranks / groups, 2) : x;
  };
  const std::int64_t own = heads / ranks, first = context.axis.rank * own;
  options.first_head += first;
  if (options.alibi_slopes.defined())
    options.alibi_slopes = options.alibi_slopes.narrow(0, first, own);
  const at::Tensor out = core_attention(exchange.to_heads(inputs.q, "queries"),
                                        exchange.to_heads(for_ranks(inputs.k), "keys"),
                                        exchange.to_heads(for_ranks(inputs.v), "values"),
                                        whole_keys_options(options, 0, context.placement.length))
                             .out;
  return exchange.to_rows(out, "attention");
}

}  // namespace

at::Tensor context_parallel_attention(const AttentionInputs& inputs,
                                      const AttentionOptions& options,
                                      const ContextParallelism& context) {
  MEGATRON_CHECK(inputs.q.size(0) == context.placement.rows_of(context.axis.rank),
                 "attention over ", inputs.q.size(0), " rows, the placement has ",
                 context.placement.rows_of(context.axis.rank));
  switch (context.comm_type) {
    case CpCommType::p2p:
      return ring_attention(inputs, options, context);
    case CpCommType::all_gather:
      return gathered_attention(inputs, options, context);
    case CpCommType::a2a:
      return ulysses_attention(inputs, options, context);
  }
  throw InternalError("an unknown --cp-comm-type");
}

}  // namespace megatron
