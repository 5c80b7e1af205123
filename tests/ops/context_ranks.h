// Attention over a sequence that rank threads share: inputs, one run on every rank of a placement,
// and the comparison with results for the whole sequence.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "megatron/ops/context_parallel_attention.h"
#include "megatron/parallel/rank_threads.h"

namespace megatron {

inline constexpr std::int64_t kLength = 48, kBatch = 2, kHeads = 24, kGroups = 12, kChannels = 4;

inline at::Tensor input(at::IntArrayRef shape, double phase, double size = 1) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 0.7 + phase).sin().mul(size).view(shape);
}

inline AttentionInputs whole_inputs(double size = 1) {
  return {input({kLength, kBatch, kHeads, kChannels}, 0.1, size),
          input({kLength, kBatch, kGroups, kChannels}, 1.2, size),
          input({kLength, kBatch, kGroups, kChannels}, 2.3)};
}

struct Results {
  at::Tensor out, dq, dk, dv;
};

/// Runs `attend` on leaves with the values of `inputs` and then its backward from `dout`.
inline Results run(const AttentionInputs& inputs, const at::Tensor& dout,
                   const std::function<at::Tensor(const AttentionInputs&)>& attend) {
  const auto leaf = [](const at::Tensor& x) { return x.detach().clone().requires_grad_(); };
  const AttentionInputs leaves{leaf(inputs.q), leaf(inputs.k), leaf(inputs.v)};
  const at::Tensor out = attend(leaves);
  out.backward(dout);
  return {out.detach(), leaves.q.grad(), leaves.k.grad(), leaves.v.grad()};
}

/// The axis of `count` ranks from `first` on, `stride` apart.
inline Axis axis_of(Communicators& communicators, std::int64_t first, std::int64_t count,
                    std::int64_t stride) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return {.name = "cp",
          .rank = (communicators.rank() - first) / stride,
          .size = count,
          .comm = communicators.group(ranks, "cp")};
}

inline Axis cp_axis(Communicators& communicators, std::int64_t ranks) {
  return axis_of(communicators, 0, ranks, 1);
}

/// Neighbours that exchange heads: two of four ranks, three of six.
inline std::int64_t a2a_ranks(std::int64_t ranks) { return ranks / 2; }

/// What one rank does: mine(x) are its rows of a whole tensor, attend(x) is its attention.
struct ContextRank {
  std::int64_t rank = 0;
  std::function<at::Tensor(const at::Tensor&)> mine;
  std::function<at::Tensor(const AttentionInputs&)> attend;

  AttentionInputs mine_of(const AttentionInputs& x) const {
    return {mine(x.q), mine(x.k), mine(x.v)};
  }
};

/// The ranks of cp, and for a2a+p2p its levels.
struct ContextAxes {
  Axis axis, a2a = {}, p2p = {};
};

inline ContextAxes context_axes(Communicators& communicators, std::int64_t ranks, CpCommType type) {
  ContextAxes axes{.axis = cp_axis(communicators, ranks)};
  if (type != CpCommType::a2a_p2p) return axes;
  const std::int64_t inner = a2a_ranks(ranks);
  axes.a2a = axis_of(communicators, axes.axis.rank / inner * inner, inner, 1);
  axes.p2p = axis_of(communicators, axes.axis.rank % inner, ranks / inner, inner);
  return axes;
}

/// Calls `body` on every rank of a placement, each a thread.
inline void on_context_ranks(const SequencePlacement& placement, CpCommType type,
                             const AttentionOptions& options,
                             const std::function<void(const ContextRank&)>& body) {
  const auto ranks = static_cast<std::int64_t>(placement.runs_of.size());
  run_rank_threads(ranks,
                   [&](Communicators& communicators) {
                     const ContextAxes axes = context_axes(communicators, ranks, type);
                     const Axis& axis = axes.axis;
                     const at::Tensor rows =
                         positions_of(placement.runs_of[static_cast<std::size_t>(axis.rank)]);
                     body({.rank = axis.rank,
                           .mine = [&](const at::Tensor& x) { return x.index_select(0, rows); },
                           .attend =
                               [&](const AttentionInputs& x) {
                                 return context_parallel_attention(x, options,
                                                                   {.axis = axis,
                                                                    .placement = placement,
                                                                    .comm_type = type,
                                                                    .a2a = &axes.a2a,
                                                                    .p2p = &axes.p2p});
                               }});
                   },
                   {.timeout = std::chrono::milliseconds(20'000)});
}

/// The largest difference that counts as rounding, for each result.
struct Limits {
  double out = 0, dq = 0, dk = 0, dv = 0;
};

/// Limits relative to the largest value of each result.
inline Limits relative_limits(const Results& expected, double limit) {
  const auto of = [&](const at::Tensor& x) { return limit * x.abs().max().item<double>(); };
  return {of(expected.out), of(expected.dq), of(expected.dk), of(expected.dv)};
}

/// Compares the attention of the ranks of a placement with `expected`, that of the whole sequence.
inline void expect_results(const SequencePlacement& placement, CpCommType type,
                           const AttentionInputs& inputs, const at::Tensor& dout,
                           const AttentionOptions& options, const Results& expected,
                           const Limits& limits) {
  on_context_ranks(placement, type, options, [&](const ContextRank& rank) {
    const Results actual = run(rank.mine_of(inputs), rank.mine(dout), rank.attend);
    const auto compare = [&](const at::Tensor& a, const at::Tensor& whole, double limit,
                             const char* what) {
      const at::Tensor b = rank.mine(whole).to(at::kDouble);
      EXPECT_LE((a.to(at::kDouble) - b).abs().max().item<double>(), limit)
          << what << " of rank " << rank.rank;
    };
    compare(actual.out, expected.out, limits.out, "out");
    compare(actual.dq, expected.dq, limits.dq, "dq");
    compare(actual.dk, expected.dk, limits.dk, "dk");
    compare(actual.dv, expected.dv, limits.dv, "dv");
  });
}

}  // namespace megatron
