// Attention over rows that are divided among the ranks of cp, or that pack several sequences. Every
// form gives the result of one rank and of each sequence alone, dropout included.
#pragma once

#include "megatron/config/cp_comm_type.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

/// The ranks that share the rows of a microbatch, and how they exchange keys and values.
struct ContextParallelism {
  const Axis& axis;
  const SequencePlacement& placement;
  CpCommType comm_type = CpCommType::p2p;
  /// For a2a_p2p: the neighbours that exchange heads, and the ranks with the same place in each
  /// such group, which form a ring. The axis' rank is p2p->rank · a2a->size + a2a->rank.
  const Axis* a2a = nullptr;
  const Axis* p2p = nullptr;
  ActivityLog* activities = nullptr;  ///< records the steps of a ring; may be null
};

/// Computes attention of this rank's queries q [rows, b, n, d] over the keys and values [rows, b,
/// g, d or dv] of all ranks, and returns [rows, b, n·dv]. The rows are those of the placement; a
/// query sees only keys of its own packed sequence. `options` describes heads, masks and dropout;
/// its positions are ignored. With packed sequences b = 1, and the dropout site has one ordinal for
/// each sequence. Differentiable. Collective over the axis in forward and in backward.
///
/// - p2p: keys and values travel around a ring (Liu et al. 2023, "Ring Attention with Blockwise
///   Transformers"); partial results are merged by their log-sum-exp. In backward the gradients of
///   keys and values travel behind them, in float32 or wider. Blocks that no query sees are
///   skipped. A rank sends (size − 1) times its keys and values in forward.
/// - all_gather: every rank gathers all keys and values, and attends to them at once, in the order
///   of one rank. Backward reduce-scatters their gradients.
/// - a2a: the ranks exchange positions for heads (Jacobs et al. 2023, "DeepSpeed Ulysses"), so each
///   computes all rows for n / size heads, in the order of one rank. n must be a multiple of size,
///   and g a multiple or a divisor of it.
/// - a2a_p2p: a2a within groups of neighbours, and a ring over the groups ("Unified Sequence
///   Parallelism", Fang and Zhao 2024).
at::Tensor context_parallel_attention(const AttentionInputs& inputs,
                                      const AttentionOptions& options,
                                      const ContextParallelism& context);

/// Attention of the rows of `runs` to all keys of their sequences. q holds the rows of the runs, k
/// and v all rows of the placement in order.
at::Tensor attend_to_sequences(const AttentionInputs& inputs, const AttentionOptions& options,
                               const SequencePlacement& placement,
                               const std::vector<PositionRun>& runs);

/// The ring of p2p (ring_attention.cpp).
at::Tensor ring_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                          const ContextParallelism& context);

/// Returns the options of attention of a piece's queries to keys of its sequence from position
/// `k_start` on.
AttentionOptions options_of(const SequencePiece& piece, std::int64_t k_start,
                            const SequencePlacement& placement, AttentionOptions options);

}  // namespace megatron
