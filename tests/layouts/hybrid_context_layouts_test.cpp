// Hybrid context parallelism never changes the mathematics: the documents of a step, divided over
// ranks by their lengths, have the loss and the gradients of one rank in float64, dropout included.
#include <gtest/gtest.h>

#include <algorithm>
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
constexpr std::int64_t kSequence = 48, kMostRanks = 16;
/// More than a rank holds: how often a document of the whole sequence is divided at least.
constexpr std::array<std::int64_t, 3> kTightness{1, 2, 4};
/// The pipelines of the table: none, one chunk each, several, V, and a zero bubble.
constexpr std::array<std::size_t, 5> kPipelines{0, 1, 4, 7, 5};

const std::vector<Family>& hybrid_families() {
  static const std::vector<Family> all = {
      {"gpt", {"--eod-mask-loss"}},
      {"llama, window",
       llama({"--group-query-attention", "--num-query-groups", "2", "--window-size", "9,0"})},
      {"alibi",
       {"--position-embedding-type", "alibi", "--qk-layernorm", "--normalization", "RMSNorm"}}};
  return all;
}

struct HybridLayout {
  std::size_t family = 0;
  std::int64_t dp = 1, cp = 1, tp = 1;
  bool sequence_parallel = false, gathers = false, distributed_optimizer = false;
  std::size_t pipeline = 0;    ///< index into pipelines()
  std::int64_t tightness = 1;  ///< least number of ranks for a document of the whole sequence

  std::int64_t world_size() const { return dp * cp * tp * pipelines()[pipeline].ranks; }
  bool is_valid() const {
    const std::int64_t block = dp * cp & -(dp * cp);
    return world_size() <= kMostRanks && (!sequence_parallel || tp > 1) && tightness <= block;
  }

  Flags flags() const {
    Flags all{"--dataloader-inter-document-masking",
              "--calculate-per-token-loss",
              "--hybrid-context-parallel",
              "--max-seqlen-per-dp-cp-rank",
              std::to_string(kSequence / tightness),
              "--context-parallel-size",
              std::to_string(cp),
              "--tensor-model-parallel-size",
              std::to_string(tp),
              "--cp-comm-type",
              gathers ? "all_gather" : "p2p"};
    if (sequence_parallel) all.emplace_back("--sequence-parallel");
    if (distributed_optimizer) all.emplace_back("--use-distributed-optimizer");
    const Flags stages = pipelines()[pipeline].flags();
    all.insert(all.end(), stages.begin(), stages.end());
    return all;
  }

  std::string text() const {
    std::string words = hybrid_families()[family].name + ", dp " + std::to_string(dp);
    for (const std::string& flag : flags()) words += " " + flag;
    return words;
  }
};

std::vector<HybridLayout> all_hybrid_layouts() {
  std::vector<HybridLayout> all;
  for (std::size_t family = 0; family < hybrid_families().size(); ++family)
    for (const std::int64_t dp : {1, 2, 3, 4})
      for (const std::int64_t cp : {1, 2})
        for (const std::int64_t tp : {1, 2})
          for (const unsigned bits : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U})
            for (const std::size_t pipeline : kPipelines)
              for (const std::int64_t tightness : kTightness) {
                const HybridLayout layout{
                    family,          dp,       cp,       tp, (bits & 1) != 0, (bits & 2) != 0,
                    (bits & 4) != 0, pipeline, tightness};
                if (layout.is_valid()) all.push_back(layout);
              }
  return all;
}

std::array<std::int64_t, 9> choices(const HybridLayout& l) {
  return {static_cast<std::int64_t>(l.family),
          l.dp,
          l.cp,
          l.tp,
          l.sequence_parallel,
          l.gathers,
          l.distributed_optimizer,
          static_cast<std::int64_t>(l.pipeline),
          l.tightness};
}

TrainingResult train(std::size_t family, const Flags& layout, std::int64_t world_size) {
  Flags all = common_flags();
  const Flags sizes{"--seq-length", std::to_string(kSequence), "--global-batch-size", "12"};
  for (const Flags& more : {hybrid_families()[family].flags, layout, sizes, one_sgd_step()})
    all.insert(all.end(), more.begin(), more.end());
  use_short_documents(all);
  return train_in_layout(all, world_size, {.dtype = at::kDouble});
}

/// The same documents, packed sample by sample on one rank.
const TrainingResult& one_rank(std::size_t family) {
  static std::map<std::size_t, TrainingResult> known;
  auto found = known.find(family);
  if (found == known.end())
    found = known
                .emplace(
                    family,
                    train(family,
                          {"--dataloader-inter-document-masking", "--calculate-per-token-loss"}, 1))
                .first;
  return found->second;
}

void expect_one_rank(const HybridLayout& layout) {
  SCOPED_TRACE(layout.text());
  const TrainingResult &expected = one_rank(layout.family),
                       actual = train(layout.family, layout.flags(), layout.world_size());
  EXPECT_LE(curve_distance(actual.losses, expected.losses), kLimit) << "loss";
  EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), kLimit) << "gradient norm";
  expect_gradients(actual, expected, kLimit);
}

TEST(HybridContextLayouts, TrainAsOneRankDoes) {
  std::vector<HybridLayout> layouts = all_hybrid_layouts();
  if (!wants_all())
    layouts = cover_pairs(
        layouts, [](const HybridLayout& layout) { return choices(layout); },
        [](const HybridLayout& layout, const auto&) { return -layout.world_size(); });
  RecordProperty("layouts", static_cast<int>(layouts.size()));
  for (const HybridLayout& layout : layouts) expect_one_rank(layout);
}

TEST(HybridContextLayouts, RandomOnesTrainAsOneRankDoes) {
  const unsigned seed = layout_seed();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<HybridLayout> all = all_hybrid_layouts();
  for (int i = 0; i < 3; ++i) expect_one_rank(all[random() % all.size()]);
}

}  // namespace
}  // namespace megatron::layouts
