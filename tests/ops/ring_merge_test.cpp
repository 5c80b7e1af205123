// What a ring merges from parts of the keys, against a softmax in float64 over all keys, on scores
// that a careless merge would overflow, lose or turn into NaN.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "ops/context_ranks.h"

namespace megatron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kRanks = 4, kChunk = kLength / (2 * kRanks);

/// [s, b, n, d] → [b, n, s, d] in float64; the heads of a group repeat.
at::Tensor by_head(const at::Tensor& x) {
  return x.to(at::kDouble).permute({1, 2, 0, 3}).repeat_interleave(kHeads / x.size(2), 1);
}

/// [b, n, s, d] → [s, b, groups, d]: the heads of a group are added.
at::Tensor by_group(const at::Tensor& x, std::int64_t groups) {
  return x.reshape({x.size(0), groups, -1, x.size(2), x.size(3)}).sum(2).permute({2, 0, 1, 3});
}

at::Tensor by_row(const at::Tensor& x) { return x.permute({2, 0, 1, 3}).flatten(2); }

/// softmax(q·kᵀ) over the visible keys, [b, n, q, k]. `visible` is [b or 1, 1, q, k].
at::Tensor textbook_probabilities(const AttentionInputs& inputs, const at::Tensor& visible) {
  const at::Tensor scores = at::matmul(by_head(inputs.q), by_head(inputs.k).transpose(2, 3))
                                .masked_fill(visible.logical_not(), -kInfinity);
  const at::Tensor powers = (scores - scores.amax({-1}, true)).exp();
  return powers / powers.sum({-1}, true);
}

/// Attention and its gradients as the definition says.
Results textbook(const AttentionInputs& inputs, const at::Tensor& dout_rows,
                 const at::Tensor& visible) {
  const at::Tensor p = textbook_probabilities(inputs, visible),
                   dout = by_head(dout_rows.view({kLength, kBatch, kHeads, kChannels})),
                   dp = at::matmul(dout, by_head(inputs.v).transpose(2, 3)),
                   ds = p * (dp - (p * dp).sum({-1}, true));
  return {by_row(at::matmul(p, by_head(inputs.v))),
          by_group(at::matmul(ds, by_head(inputs.k)), kHeads),
          by_group(at::matmul(ds.transpose(2, 3), by_head(inputs.q)), kGroups),
          by_group(at::matmul(p.transpose(2, 3), dout), kGroups)};
}

/// Returns the keys that each query sees, [b or 1, 1, q, k].
at::Tensor visible_keys(const AttentionOptions& options) {
  const at::Tensor q = at::arange(kLength).unsqueeze(1), k = at::arange(kLength).unsqueeze(0);
  at::Tensor visible = at::ones({1, 1, kLength, kLength}, at::kBool);
  if (options.causal) visible = visible.logical_and(k <= q);
  if (options.window[0] >= 0) visible = visible.logical_and(k >= q - options.window[0]);
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    visible = visible.logical_and((ids.unsqueeze(2) == ids.unsqueeze(1)).unsqueeze(1));
  }
  return visible;
}

/// Inputs whose score of key j is about level(j) for every query, as the first channels make it.
AttentionInputs inputs_with_levels(const std::function<double(std::int64_t)>& level) {
  AttentionInputs inputs = whole_inputs();
  inputs.q.select(3, 0).fill_(1);
  for (std::int64_t j = 0; j < kLength; ++j) inputs.k[j].select(2, 0).fill_(level(j));
  return inputs;
}

/// The number of the zigzag chunk of a position: of 8 chunks on 4 ranks.
double chunk_of(std::int64_t position) { return static_cast<double>(position / kChunk); }

struct Scores {
  std::string name;
  AttentionInputs inputs;
};

std::vector<Scores> adversarial_scores() {
  AttentionInputs equal = whole_inputs();
  equal.k = at::full_like(equal.k, 0.5);
  const auto levels = [](const auto& level) { return inputs_with_levels(level); };
  return {
      {"all equal", equal},
      {"rising by 1e4 from chunk to chunk", levels([](auto j) { return 1e4 * chunk_of(j); })},
      {"falling by 1e4", levels([](auto j) { return -1e4 * chunk_of(j); })},
      {"1e4 and -1e4 by turns", levels([](auto j) { return j / kChunk % 2 == 0 ? 1e4 : -1e4; })},
      {"a single key 1e4 above the others", levels([](auto j) { return j == 20 ? 1e4 : 0.; })},
      {"all near 1e4", levels([](auto) { return 1e4; })},
      {"all near -1e4", levels([](auto) { return -1e4; })}};
}

/// Documents that are a chunk each, and in the other sample a position each: a query sees nothing
/// in any part of the keys but its own.
at::Tensor documents_of_a_chunk() {
  at::Tensor ids = at::arange(kLength, at::kInt).repeat({kBatch, 1});
  ids[0].div_(kChunk, "trunc");
  return ids;
}

std::vector<std::pair<std::string, AttentionOptions>> masks() {
  return {{"causal", {}},
          {"bidirectional", {.causal = false}},
          {"only itself", {.window = {0, 0}}},
          {"a window within a chunk", {.window = {kChunk - 2, 0}}},
          {"a document in each part", {.causal = false, .document_ids = documents_of_a_chunk()}}};
}

constexpr std::array kRings{CpCommType::p2p, CpCommType::a2a_p2p};

/// A score of size S carries an absolute error of a few S·ε, with ε that of the type. Its
/// exponential turns that into a relative error of the probability, and so of out and of each term
/// of dk and dv; dq multiplies it by keys, which are as large as the scores here.
Limits limits_of(const AttentionInputs& inputs, double epsilon) {
  const double score = std::max(1.0, inputs.k.abs().max().item<double>()),
               probability = 16 * epsilon * score, of_all_queries = 6 * probability;
  return {
      .out = probability, .dq = probability * score, .dk = of_all_queries, .dv = of_all_queries};
}

TEST(RingMerge, IsTheSoftmaxOverAllKeys) {
  for (const auto& [type, epsilon] :
       {std::pair(at::kDouble, 0x1p-52), std::pair(at::kFloat, 0x1p-23)}) {
    for (const Scores& scores : adversarial_scores()) {
      const AttentionInputs inputs{scores.inputs.q.to(type), scores.inputs.k.to(type),
                                   scores.inputs.v.to(type)};
      const at::Tensor dout = input({kLength, kBatch, kHeads * kChannels}, 0.4).to(type);
      for (const auto& [mask, options] : masks()) {
        const Results expected = textbook(inputs, dout, visible_keys(options));
        for (const CpCommType ring : kRings) {
          SCOPED_TRACE(scores.name + ", " + mask + ", " + c10::toString(type) +
                       (ring == CpCommType::p2p ? ", p2p" : ", a2a+p2p"));
          expect_results(zigzag_placement(kLength, kRanks), ring, inputs, dout, options, expected,
                         limits_of(inputs, epsilon));
        }
      }
    }
  }
}

/// Compares the results of all ranks with `expected`, which may have NaN, and expects NaN nowhere
/// else. Scores and values are about 1, so results carry some roundings of the type.
void expect_forward(const AttentionInputs& inputs, const AttentionOptions& options,
                    const at::Tensor& expected) {
  for (const auto& [type, limit] : {std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 1e-5)}) {
    for (const CpCommType ring : kRings) {
      SCOPED_TRACE(std::string(c10::toString(type)) + (ring == CpCommType::p2p ? "" : ", a2a+p2p"));
      on_context_ranks(
          zigzag_placement(kLength, kRanks), ring, options, [&](const ContextRank& rank) {
            const AttentionInputs mine{rank.mine(inputs.q).to(type), rank.mine(inputs.k).to(type),
                                       rank.mine(inputs.v).to(type)};
            EXPECT_TRUE(at::allclose(rank.attend(mine).to(at::kDouble), rank.mine(expected), limit,
                                     limit, true))
                << "rank " << rank.rank;
          });
    }
  }
}

/// The queries that see a NaN score have NaN, whole and in the heads that share it. Every other one
/// has what the definition says.
TEST(RingMerge, PassesNaNOnlyToTheQueriesThatSeeIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [mask, options] : masks()) {
    SCOPED_TRACE(mask);
    const at::Tensor visible = visible_keys(options);
    AttentionInputs inputs = whole_inputs();
    const at::Tensor whole =
        by_row(at::matmul(textbook_probabilities(inputs, visible), by_head(inputs.v)));
    at::Tensor expected = whole.clone().view({kLength, kBatch, kHeads, kChannels});
    inputs.q[9][1][3][2] = nan;
    expected[9][1][3].fill_(nan);
    expect_forward(inputs, options, expected.flatten(2));
    inputs = whole_inputs();
    inputs.k[20][0][5][1] = nan;
    expected = whole.clone().view({kLength, kBatch, kHeads, kChannels});
    const at::Tensor sees = visible.select(0, 0)[0].select(1, 20);
    for (std::int64_t q = 0; q < kLength; ++q)
      if (sees[q].item<bool>()) expected[q][0].narrow(0, 10, 2).fill_(nan);
    expect_forward(inputs, options, expected.flatten(2));
  }
}

/// Scores of −∞ that no mask made: the keys of three ranks weigh nothing.
TEST(RingMerge, GivesKeysOfScoreMinusInfinityNoWeight) {
  const AttentionInputs inputs = inputs_with_levels(
      [](std::int64_t j) { return j / kChunk == 0 || j / kChunk == 7 ? 0 : -kInfinity; });
  for (const bool causal : {true, false}) {
    const AttentionOptions options{.causal = causal};
    const at::Tensor p = textbook_probabilities(inputs, visible_keys(options));
    ASSERT_FALSE(p.isnan().any().item<bool>());
    expect_forward(inputs, options, by_row(at::matmul(p, by_head(inputs.v))));
  }
}

}  // namespace
}  // namespace megatron
