// Context parallelism never changes the mathematics: sequences divided over any number of ranks,
// with every exchange of keys and values, have the loss and the gradients of one rank in float64,
// dropout included.
//
// The fast set covers every pair of choices; MEGATRON_TEST_LAYOUTS=all takes every combination.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "layouts/chosen_layouts.h"
#include "layouts/layout_run.h"
#include "layouts/pairwise.h"
#include "layouts/short_documents.h"

namespace megatron::layouts {
namespace {

constexpr double kLimit = 1e-12;
constexpr std::int64_t kMostRanks = 16;

/// What the layers of a model exchange. The last one differs from layer to layer.
constexpr std::array<std::array<const char*, 4>, 5> kExchanges{
    {{"p2p", "p2p", "p2p", "p2p"},
     {"all_gather", "all_gather", "all_gather", "all_gather"},
     {"a2a", "a2a", "a2a", "a2a"},
     {"p2p", "a2a", "all_gather", "p2p"},
     {"a2a+p2p", "a2a+p2p", "p2p", "a2a+p2p"}}};
constexpr std::size_t kHierarchical = 4;  ///< index of the exchange over two levels

/// Models of 24 heads on sequences of 48, which 2, 3, 4 and 8 ranks divide.
const std::vector<Family>& context_families() {
  // With this seed two of four samples have padding.
  static const std::vector<Family> all = {
      {"gpt", {"--eod-mask-loss"}},
      {"grouped queries", llama({"--group-query-attention", "--num-query-groups", "2",
                                 "--ddp-average-in-collective"})},
      {"window and alibi",
       {"--position-embedding-type", "alibi", "--window-size", "11,0",
        "--calculate-per-token-loss"}},
      {"packed documents",
       llama({"--group-query-attention", "--num-query-groups", "12", "--reset-position-ids",
              "--reset-attention-mask", "--eod-mask-loss"})},
      {"packed documents, mean over tokens",
       {"--qk-layernorm", "--normalization", "RMSNorm", "--reset-position-ids",
        "--reset-attention-mask", "--eod-mask-loss", "--calculate-per-token-loss"}},
      {"packed sequences", {"--dataloader-inter-document-masking"}},
      {"packed sequences, grouped queries, window, mean over tokens",
       llama({"--group-query-attention", "--num-query-groups", "2", "--window-size", "9,0",
              "--dataloader-inter-document-masking", "--eod-mask-loss",
              "--calculate-per-token-loss"})},
      {"packed sequences, best fit",
       {"--dataloader-inter-document-masking", "--document-packing-strategy", "bfd_split"}},
      {"bert", bert({"--seed", "11"}), false, "bert"},
      {"latents", latents({"--rope-type", "rope"})},
      {"packed sequences, latents, mean over tokens",
       latents({"--qk-layernorm", "--q-lora-rank", "12", "--dataloader-inter-document-masking",
                "--eod-mask-loss", "--calculate-per-token-loss"})},
      {"multi-token prediction, packed documents",
       llama({"--mtp-num-layers", "2", "--reset-position-ids", "--reset-attention-mask",
              "--eod-mask-loss"})},
      {"multi-token prediction, packed sequences",
       llama({"--mtp-num-layers", "2", "--mtp-use-repeated-layer",
              "--dataloader-inter-document-masking", "--calculate-per-token-loss"})},
      {"bert of classes", bert({"--task", "classify", "--num-classes", "3"}), false, "bert"},
      {"mamba, packed sequences",
       llama({"--hybrid-layer-pattern", "M-M*", "--mamba-state-dim", "6", "--mamba-head-dim", "3",
              "--mamba-num-heads", "24", "--mamba-num-groups", "4",
              "--dataloader-inter-document-masking"}),
       false, "hybrid"},
      {"gated delta nets, packed documents",
       llama({"--experimental-attention-variant", "gated_delta_net", "--linear-attention-freq", "2",
              "--linear-key-head-dim", "6", "--linear-value-head-dim", "5",
              "--linear-num-key-heads", "12", "--linear-num-value-heads", "24",
              "--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"})}};
  return all;
}

/// The groups of heads of a family's recurrent layers; 0: it has none.
std::int64_t recurrent_groups(const Family& family) {
  if (!family.is_recurrent()) return 0;
  return family.model == "hybrid" ? 4 : 12;
}

struct ContextLayout {
  std::size_t family = 0;
  std::int64_t cp = 1;
  std::size_t exchange = 0;  ///< index into kExchanges
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  std::size_t pipeline = 0;  ///< index into pipelines()
  std::int64_t dp = 1;
  bool distributed_optimizer = false;

  std::int64_t world_size() const { return cp * tp * dp * pipelines()[pipeline].ranks; }

  bool is_valid() const {
    constexpr std::int64_t kHeads = 24;
    if (world_size() > kMostRanks || (sequence_parallel && tp == 1)) return false;
    if (exchange == kHierarchical && cp % 4 != 0) return false;
    if (const std::int64_t groups = recurrent_groups(context_families()[family]); groups > 0) {
      const std::int64_t ranks = tp * cp;
      if (exchange % 2 != 0 || kHeads % ranks != 0) return false;
      if (groups % ranks != 0 && ranks % groups != 0) return false;
    }
    const std::int64_t groups = family == 1 || family == 6 ? 2 : family == 3 ? 12 : kHeads;
    return exchange < 2 || divides_heads(kHeads / tp, groups, exchange == kHierarchical ? 2 : cp);
  }

  Flags flags() const {
    Flags all{"--num-attention-heads",
              "24",
              "--kv-channels",
              "4",
              "--seq-length",
              "48",
              "--global-batch-size",
              "4",
              "--context-parallel-size",
              std::to_string(cp),
              "--tensor-model-parallel-size",
              std::to_string(tp),
              "--cp-comm-type"};
    all.insert(all.end(), kExchanges[exchange].begin(), kExchanges[exchange].end());
    if (exchange == kHierarchical)
      all.insert(all.end(), {"--hierarchical-context-parallel-sizes", "2", std::to_string(cp / 2)});
    if (sequence_parallel) all.emplace_back("--sequence-parallel");
    if (distributed_optimizer) all.emplace_back("--use-distributed-optimizer");
    for (const Flags& more : {pipelines()[pipeline].flags(), context_families()[family].flags})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string text() const {
    std::string words = context_families()[family].name + ", dp " + std::to_string(dp);
    for (const std::string& flag : flags()) words += " " + flag;
    return words;
  }

 private:
  bool divides_heads(std::int64_t heads, std::int64_t groups, std::int64_t ranks) const {
    const std::int64_t own = std::max<std::int64_t>(1, groups / tp);
    return heads % ranks == 0 && (own % ranks == 0 || ranks % own == 0);
  }
};

/// The pipelines of the table: none, one chunk each, several, V, and one that orders microbatches
/// otherwise.
constexpr std::array<std::size_t, 5> kPipelines{0, 1, 4, 7, 10};

std::vector<ContextLayout> all_context_layouts() {
  std::vector<ContextLayout> all;
  for (std::size_t family = 0; family < context_families().size(); ++family)
    for (const std::int64_t cp : {2, 3, 4, 8})
      for (std::size_t exchange = 0; exchange < kExchanges.size(); ++exchange)
        for (const std::int64_t tp : {1, 2})
          for (const bool sequence_parallel : {false, true})
            for (const std::size_t pipeline : kPipelines)
              for (const std::int64_t dp : {1, 2})
                for (const bool distributed : {false, true}) {
                  const ContextLayout layout{family,   cp, exchange,   tp, sequence_parallel,
                                             pipeline, dp, distributed};
                  if (layout.is_valid()) all.push_back(layout);
                }
  return all;
}

std::array<std::int64_t, 8> choices(const ContextLayout& l) {
  return {static_cast<std::int64_t>(l.family),
          l.cp,
          static_cast<std::int64_t>(l.exchange),
          l.tp,
          l.sequence_parallel,
          static_cast<std::int64_t>(l.pipeline),
          l.dp,
          l.distributed_optimizer};
}

std::vector<ContextLayout> pairwise_context_layouts() {
  // The smaller world is preferred, because its ranks are threads.
  return cover_pairs(
      all_context_layouts(), [](const ContextLayout& layout) { return choices(layout); },
      [](const ContextLayout& layout, const auto&) { return -layout.world_size(); });
}

TrainingResult train(const ContextLayout& layout, const TrainingOptions& options,
                     const Flags& more_flags = {}) {
  Flags all = common_flags();
  all.front() = context_families()[layout.family].model;
  for (const Flags& more : {layout.flags(), one_sgd_step(), more_flags})
    all.insert(all.end(), more.begin(), more.end());
  use_short_documents(all);
  return train_in_layout(all, layout.world_size(), options);
}

const TrainingOptions kFloat64{.dtype = at::kDouble};

const TrainingResult& one_rank(std::size_t family) {
  static std::map<std::size_t, TrainingResult> known;
  auto found = known.find(family);
  if (found == known.end())
    found = known.emplace(family, train({.family = family}, kFloat64)).first;
  return found->second;
}

void expect_one_rank(const ContextLayout& layout) {
  SCOPED_TRACE(layout.text());
  const TrainingResult &expected = one_rank(layout.family), actual = train(layout, kFloat64);
  EXPECT_LE(curve_distance(actual.losses, expected.losses), kLimit) << "loss";
  EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), kLimit) << "gradient norm";
  expect_gradients(actual, expected, kLimit);
}

TEST(ContextLayouts, TrainAsOneRankDoes) {
  const auto layouts = wants_all() ? all_context_layouts() : pairwise_context_layouts();
  RecordProperty("layouts", static_cast<int>(layouts.size()));
  for (const ContextLayout& layout : layouts) expect_one_rank(layout);
}

TEST(ContextLayouts, RandomOnesTrainAsOneRankDoes) {
  const unsigned seed = layout_seed();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<ContextLayout> all = all_context_layouts();
  for (int i = 0; i < 3; ++i) expect_one_rank(all[random() % all.size()]);
}

/// Two ranks and three, each exchange, with tensor parallelism or a pipeline.
const std::vector<ContextLayout> kRoundedLayouts{
    {.family = 0, .cp = 2, .exchange = 0},
    {.family = 1, .cp = 3, .exchange = 0, .tp = 2, .sequence_parallel = true},
    {.family = 2, .cp = 4, .exchange = 1, .pipeline = 1},
    {.family = 3, .cp = 2, .exchange = 2, .dp = 2, .distributed_optimizer = true},
    {.family = 1, .cp = 4, .exchange = 4},
    {.family = 6, .cp = 2, .exchange = 0},
    {.family = 14, .cp = 8, .exchange = 0},
    {.family = 15, .cp = 3, .exchange = 0, .tp = 2, .sequence_parallel = true}};

// The limits of layouts_test.cpp.
TEST(ContextLayouts, InFloat32TrainAsOneRankDoes) {
  for (const ContextLayout& layout : kRoundedLayouts) {
    SCOPED_TRACE(layout.text());
    const TrainingResult expected = train({.family = layout.family}, {}),
                         actual = train(layout, {});
    EXPECT_LE(curve_distance(actual.losses, expected.losses), 1e-6);
    expect_gradients(actual, expected, 1e-5);
  }
}

/// Attention is rounded once more where its result is merged or changes ranks, so the limit is that
/// of tensor parallelism (layouts_test.cpp).
TEST(ContextLayouts, InBf16GradientsAreNoFartherFromFp32) {
  const Flags bf16{"--bf16"};
  for (const ContextLayout& layout : kRoundedLayouts) {
    SCOPED_TRACE(layout.text());
    const ContextLayout alone{.family = layout.family};
    const TrainingResult exact = train(alone, {});
    EXPECT_LE(gradient_distance(train(layout, {}, bf16), exact),
              1.25 * gradient_distance(train(alone, {}, bf16), exact));
  }
}

}  // namespace
}  // namespace megatron::layouts
