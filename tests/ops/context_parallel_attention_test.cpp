// Attention over a sequence that several ranks share, against attention on one rank: values and
// gradients in float64 for every exchange and option, the bytes that each exchange sends, and the
// balance of the placement.
#include "megatron/ops/context_parallel_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/schedules/context_exchange.h"
#include "ops/context_ranks.h"

namespace megatron {
namespace {

/// Compares the attention of `ranks` ranks with that of one.
void expect_one_rank(std::int64_t ranks, CpCommType type, const AttentionInputs& inputs,
                     const AttentionOptions& options, double limit = 1e-12) {
  const at::Tensor dout =
      input({kLength, kBatch, kHeads * kChannels}, 0.4).to(inputs.q.scalar_type());
  const Results expected = run(inputs, dout, [&](const AttentionInputs& x) {
    return core_attention(x.q, x.k, x.v, options).out;
  });
  expect_results(zigzag_placement(kLength, ranks), type, inputs, dout, options, expected,
                 relative_limits(expected, limit));
}

/// Documents of 5, 13 and 30 positions, and in the other sample one for each position.
at::Tensor documents() {
  at::Tensor ids = at::zeros({kBatch, kLength}, at::kInt);
  ids[0].narrow(0, 5, 43) += 1;
  ids[0].narrow(0, 18, 30) += 1;
  ids[1].copy_(at::arange(kLength));
  return ids;
}

std::map<std::string, AttentionOptions> all_options() {
  const DropoutSite dropout{.probability = 0.3,
                            .key = philox_key(5, "site"),
                            .sample_ordinals = at::tensor({7, 2}, at::kLong)};
  const at::Tensor slopes = at::exp2(-at::arange(1, kHeads + 1, at::kDouble) / 4);
  return {{"causal", {.scale = 0.5}},
          {"bidirectional", {.causal = false, .scale = 0.5}},
          {"window", {.window = {7, 0}, .scale = 0.5}},
          {"window on both sides", {.causal = false, .window = {3, 9}, .scale = 0.5}},
          {"chunks", {.chunk = 11, .scale = 0.5}},
          {"documents", {.scale = 0.5, .document_ids = documents()}},
          {"softcap, ALiBi, a later head",
           {.scale = 0.5, .softcap = 2, .alibi_slopes = slopes, .first_head = 3}},
          {"dropout", {.scale = 0.5, .first_head = 3, .dropout = dropout}},
          {"sinks", {.window = {7, 0}, .scale = 0.5, .sinks = 4 * slopes - 2}},
          {"everything",
           {.window = {20, 0},
            .scale = 0.5,
            .softcap = 2,
            .alibi_slopes = slopes,
            .sinks = slopes,
            .document_ids = documents(),
            .dropout = dropout}}};
}

constexpr std::array kAllTypes{CpCommType::p2p, CpCommType::all_gather, CpCommType::a2a,
                               CpCommType::a2a_p2p};

TEST(ContextParallelAttention, IsThatOfOneRank) {
  for (const auto& [name, options] : all_options()) {
    for (const std::int64_t ranks : {2, 3, 4, 6}) {
      for (const CpCommType type : kAllTypes) {
        if (type == CpCommType::a2a_p2p && ranks < 4) continue;
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, exchange " +
                     std::to_string(static_cast<int>(type)));
        expect_one_rank(ranks, type, whole_inputs(), options);
      }
    }
  }
}

/// The CPU's fused kernels give parts that merge as well. A bf16 part is rounded once more than the
/// whole, by at most 2⁻⁹ of its size, and so are the gradients of each part.
TEST(ContextParallelAttention, FusedKernelsMergeToo) {
  for (const auto& [type, limit] :
       {std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 4 * 0x1p-8)}) {
    AttentionInputs inputs = whole_inputs();
    for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->to(type);
    for (const auto& [name, options] : all_options()) {
      for (const CpCommType exchange : kAllTypes) {
        SCOPED_TRACE(name + ", " + c10::toString(type));
        expect_one_rank(exchange == CpCommType::a2a_p2p ? 4 : 3, exchange, inputs, options, limit);
      }
    }
  }
}

/// Packed sequences of 1, 4, 19, 2 and 22 positions, over one rank and several. Each has the
/// attention that it has alone, with the dropout masks of its ordinal.
TEST(ContextParallelAttention, PackedSequencesAreThoseOfEachAlone) {
  const std::vector<std::int64_t> cu_seqlens{0, 1, 5, 24, 26, kLength};
  const auto in_one_column = [](const at::Tensor& x) { return x.narrow(1, 0, 1).contiguous(); };
  AttentionInputs inputs = whole_inputs();
  for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = in_one_column(*x);
  const at::Tensor dout = in_one_column(input({kLength, kBatch, kHeads * kChannels}, 0.4)),
                   ordinals = at::tensor({7, 2, 1000, 3, 4}, at::kLong);
  for (auto [name, options] : all_options()) {
    if (options.document_ids.defined()) continue;
    if (options.dropout.active()) options.dropout.sample_ordinals = ordinals;
    std::vector<Results> alone;
    for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
      const auto part = [&, first = cu_seqlens[i]](const at::Tensor& x) {
        return x.narrow(0, first, cu_seqlens[i + 1] - first);
      };
      AttentionOptions own = options;
      if (own.dropout.active())
        own.dropout.sample_ordinals = ordinals.narrow(0, static_cast<std::int64_t>(i), 1);
      alone.push_back(
          run({part(inputs.q), part(inputs.k), part(inputs.v)}, part(dout),
              [&](const AttentionInputs& x) { return core_attention(x.q, x.k, x.v, own).out; }));
    }
    const auto joined = [&](at::Tensor Results::*member) {
      std::vector<at::Tensor> parts;
      for (const Results& one : alone) parts.push_back(one.*member);
      return at::cat(parts);
    };
    const Results expected{joined(&Results::out), joined(&Results::dq), joined(&Results::dk),
                           joined(&Results::dv)};
    for (const std::int64_t ranks : {1, 2, 3, 4, 6}) {
      for (const CpCommType type : kAllTypes) {
        if (type == CpCommType::a2a_p2p && ranks < 4) continue;
        SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, exchange " +
                     std::to_string(static_cast<int>(type)));
        expect_results(zigzag_placement(kLength, ranks, cu_seqlens), type, inputs, dout, options,
                       expected, relative_limits(expected, 1e-12));
      }
    }
  }
}

/// More ranks than query groups, and as many ranks as heads.
TEST(ContextParallelAttention, RanksMayShareAQueryGroup) {
  AttentionInputs inputs = whole_inputs();
  inputs.k = inputs.k.narrow(2, 0, 2);
  inputs.v = inputs.v.narrow(2, 0, 2);
  for (const std::int64_t ranks : {4, 8, 24})
    expect_one_rank(ranks, CpCommType::a2a, inputs, {.scale = 0.5});
}

/// What the ranks did in a forward and a backward pass.
struct Observed {
  std::map<std::string, std::int64_t> bytes;  ///< that rank 0 hands over, by operation and name
  std::vector<std::vector<RingStep>> ring_steps;
};

Observed observe(CpCommType type, std::int64_t ranks,
                 const AttentionOptions& options = {.scale = 1}) {
  Observed observed;
  observed.ring_steps.resize(static_cast<std::size_t>(ranks));
  const SequencePlacement placement = zigzag_placement(kLength, ranks);
  run_rank_threads(ranks, [&](Communicators& communicators) {
    const ContextAxes axes = context_axes(communicators, ranks, type);
    const Axis& axis = axes.axis;
    const at::Tensor rows = positions_of(placement.runs_of[static_cast<std::size_t>(axis.rank)]);
    const auto mine = [&](const at::Tensor& x) { return x.index_select(0, rows).to(at::kFloat); };
    const AttentionInputs all = whole_inputs();
    CommCounters& counters = communicators.counters();
    counters.take();
    counters.activities().switch_on(true);
    run({mine(all.q), mine(all.k), mine(all.v)},
        mine(input({kLength, kBatch, kHeads * kChannels}, 1)), [&](const AttentionInputs& x) {
          return context_parallel_attention(x, options,
                                            {.axis = axis,
                                             .placement = placement,
                                             .comm_type = type,
                                             .a2a = &axes.a2a,
                                             .p2p = &axes.p2p,
                                             .activities = &counters.activities()});
        });
    observed.ring_steps[static_cast<std::size_t>(axis.rank)] =
        counters.activities().take().ring_steps;
    if (axis.rank != 0) return;
    for (const CommCount& row : counters.take())
      observed.bytes[row.operation + " " + row.what] += row.bytes;
  });
  return observed;
}

TEST(ContextParallelAttention, SendsWhatTheorySays) {
  constexpr std::int64_t kRanks = 4, kRows = kLength / kRanks * kBatch, kFloat = 4;
  constexpr std::int64_t kKeyBytes = kRows * kGroups * kChannels * kFloat,
                         kQueryBytes = kRows * kHeads * kChannels * kFloat;
  const auto ring = observe(CpCommType::p2p, kRanks).bytes;
  EXPECT_EQ(ring.at("send keys and values"), 2 * (kRanks - 1) * 2 * kKeyBytes);  // both passes
  EXPECT_EQ(ring.at("send gradients of keys and values"), kRanks * 2 * kKeyBytes);
  const auto gathered = observe(CpCommType::all_gather, kRanks).bytes;
  EXPECT_EQ(gathered.at("all_gather keys"), kRanks * kKeyBytes);
  EXPECT_EQ(gathered.at("reduce_scatter keys"), kRanks * kKeyBytes);
  EXPECT_EQ(gathered.at("all_gather values"), kRanks * kKeyBytes);
  const auto exchanged = observe(CpCommType::a2a, kRanks).bytes;
  EXPECT_EQ(exchanged.at("all_to_all queries"), 2 * kQueryBytes);
  EXPECT_EQ(exchanged.at("all_to_all keys"), 2 * kKeyBytes);
  EXPECT_EQ(exchanged.at("all_to_all attention"), 2 * kQueryBytes);
}

/// The attention of the tests above as schedules/ describes it.
ContextAttention described(CpCommType type, std::int64_t ranks, const AttentionOptions& options) {
  ContextAttention attention{
      .exchange = {.ranks = ranks, .gathers = type == CpCommType::all_gather},
      .mask = {.causal = options.causal, .window = options.window},
      .length = kLength,
      .samples = kBatch,
      .heads = kHeads,
      .groups = kGroups,
      .key_channels = kChannels,
      .value_channels = kChannels,
      .element_bytes = 4};
  if (type == CpCommType::a2a) attention.exchange.head_ranks = ranks;
  if (type == CpCommType::a2a_p2p) attention.exchange.head_ranks = a2a_ranks(ranks);
  return attention;
}

/// Returns what the counters show for the steps of rank 0. They count the larger of a collective's
/// two tensors, its own part included.
std::map<std::string, std::int64_t> counted_bytes(const ContextAttention& attention) {
  const ContextExchange& exchange = attention.exchange;
  const double group = static_cast<double>(exchange.gathers ? exchange.ranks : exchange.head_ranks);
  std::map<std::string, double> bytes;
  for (const ContextSteps& pass : {forward_steps(attention), backward_steps(attention)}) {
    for (const ContextStep& step : pass.front()) {
      if (step.kind == ContextStepKind::collective)
        bytes[step.what] += step.bytes * group / (group - 1);
      if (step.kind == ContextStepKind::send) bytes["send " + step.what] += step.bytes;
      if (step.kind == ContextStepKind::receive) bytes["recv " + step.what] += step.bytes;
    }
  }
  std::map<std::string, std::int64_t> rounded;
  for (const auto& [what, count] : bytes) rounded[what] = std::llround(count);
  return rounded;
}

/// The steps that `megatron plan --show-context` draws are those that run: the same messages and
/// bytes, and in each step of a ring the same keys and as many blocks.
TEST(ContextParallelAttention, DoesWhatItsStepsSay) {
  const std::map<std::string, AttentionOptions> masks = all_options();
  for (const char* name : {"causal", "bidirectional", "window", "window on both sides"}) {
    for (const std::int64_t ranks : {2, 3, 4, 6}) {
      for (const CpCommType type : kAllTypes) {
        if (type == CpCommType::a2a_p2p && ranks < 4) continue;
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(ranks) + " ranks, exchange " +
                     std::to_string(static_cast<int>(type)));
        const AttentionOptions& options = masks.at(name);
        const Observed observed = observe(type, ranks, options);
        const ContextAttention attention = described(type, ranks, options);
        EXPECT_EQ(observed.bytes, counted_bytes(attention));
        if (attention.exchange.ring_ranks() == 1) continue;
        for (std::size_t rank = 0; rank < observed.ring_steps.size(); ++rank) {
          std::vector<std::array<std::int64_t, 4>> actual, expected;
          for (const RingStep& step : observed.ring_steps[rank])
            actual.push_back({step.is_backward, step.step, step.source, step.num_blocks});
          for (const bool is_backward : {false, true}) {
            const ContextSteps pass =
                is_backward ? backward_steps(attention) : forward_steps(attention);
            for (const ContextStep& step : pass[rank]) {
              if (step.kind == ContextStepKind::attention)
                expected.push_back({is_backward, step.ring_step, step.source,
                                    std::ranges::count_if(step.blocks, [](const auto& block) {
                                      return block.pairs > 0;
                                    })});
            }
          }
          EXPECT_EQ(actual, expected) << "rank " << rank;
        }
      }
    }
  }
}

/// Pairs of a query and a key under a causal mask, for each rank of a long sequence.
TEST(SequencePlacement, ZigzagBalancesCausalWork) {
  for (const std::int64_t ranks : {2, 3, 8, 64}) {
    const SequencePlacement placement = zigzag_placement(128 * ranks, ranks);
    std::vector<double> pairs;
    for (const auto& runs : placement.runs_of) {
      double sum = 0;
      for (const PositionRun& run : runs)
        for (std::int64_t q = run.first; q < run.end(); ++q) sum += static_cast<double>(q + 1);
      pairs.push_back(sum);
    }
    const auto [least, most] = std::ranges::minmax(pairs);
    EXPECT_LE(most / least, 1.02) << ranks << " ranks";
  }
}

/// The chunks of 3 ranks are of 4 rows: rank 1 has rows 4 … 7 and 16 … 19.
TEST(SequencePlacement, CutsRunsWhereSequencesMeet) {
  const SequencePlacement placement = zigzag_placement(24, 3, {0, 5, 6, 18, 24});
  std::vector<std::array<std::int64_t, 4>> pieces;
  for (const SequencePiece& piece : pieces_of(placement.runs_of[1], placement))
    pieces.push_back({piece.row, piece.positions.first, piece.positions.count, piece.sequence});
  EXPECT_EQ(pieces, (std::vector<std::array<std::int64_t, 4>>{
                        {0, 4, 1, 0}, {1, 0, 1, 1}, {2, 0, 2, 2}, {4, 10, 2, 2}, {6, 0, 2, 3}}));
  const RowsInSequences rows = rows_in_sequences(placement.runs_of[1], placement);
  EXPECT_TRUE(rows.positions.equal(at::tensor({4, 0, 0, 1, 10, 11, 0, 1}, at::kLong)));
  EXPECT_TRUE(rows.sequences.equal(at::tensor({0, 1, 2, 2, 2, 2, 3, 3}, at::kLong)));
}

TEST(SequencePlacement, RefusesSequencesThatDoNotAddUp) {
  for (const std::vector<std::int64_t>& wrong :
       std::vector<std::vector<std::int64_t>>{{0, 23}, {1, 24}, {0, 5, 5, 24}, {0, 9, 8, 24}})
    EXPECT_THROW(zigzag_placement(24, 3, wrong), InternalError);
}

TEST(SequencePlacement, HoldsEveryPositionOnce) {
  const SequencePlacement placement = zigzag_placement(24, 3);
  EXPECT_EQ(placement.rows_of(1), 8);
  std::vector<at::Tensor> all;
  for (const auto& runs : placement.runs_of) all.push_back(positions_of(runs));
  EXPECT_TRUE(all[1].equal(at::tensor({4, 5, 6, 7, 16, 17, 18, 19}, at::kLong)));
  EXPECT_TRUE(std::get<0>(at::cat(all).sort()).equal(at::arange(24)));
}

}  // namespace
}  // namespace megatron
