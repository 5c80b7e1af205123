// Layouts of experts never change the mathematics: in float64 the losses, the routing and every
// gradient are those of one rank to 1e-12. Layouts that differ in ep alone have the same bits.
//
// The fast set covers every pair of choices; MEGATRON_TEST_LAYOUTS=all takes every combination, and
// random ones come from MEGATRON_TEST_SEED.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

#include "layouts/chosen_layouts.h"
#include "layouts/expert_layout.h"
#include "layouts/layout_run.h"
#include "layouts/short_documents.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "support/temporary_folder.h"

namespace megatron::layouts {
namespace {

constexpr double kLimit = 1e-12;

/// One SGD step: W − W' = lr·gradient, with all bits of the gradient. 32 samples in microbatches of
/// two are enough for 16 data-parallel ranks, and their loss is a mean over two samples.
TrainingResult train_layout(const ExpertLayout& layout,
                            const TrainingOptions& options = {.dtype = at::kDouble},
                            const Flags& more = {}) {
  std::vector<std::string> flags = common_flags();
  const Flags sizes{"--micro-batch-size", "2", "--global-batch-size", "32"};
  for (const auto& part : {sizes, one_sgd_step(), expert_families()[layout.family].flags,
                           drop_policies()[layout.drops].flags, layout.flags()})
    flags.insert(flags.end(), part.begin(), part.end());
  flags.insert(flags.end(), more.begin(), more.end());
  use_short_documents(flags);
  return train_in_layout(flags, layout.world_size(), options);
}

/// Returns the one-rank run of a family with a drop policy, computed once.
const TrainingResult& one_rank(const ExpertLayout& layout) {
  static std::map<std::pair<std::size_t, std::size_t>, TrainingResult> known;
  const auto key = std::pair(layout.family, layout.drops);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  TrainingResult result = train_layout({.family = layout.family, .drops = layout.drops});
  for (const auto& [name, after] : result.after)
    EXPECT_FALSE(after.equal(result.before.at(name))) << name << " is not trained";
  return known.emplace(key, std::move(result)).first->second;
}

/// The numbers of choices are equal, and means over tokens agree within rounding.
void expect_same_routing(const std::vector<LayerRouting>& actual,
                         const std::vector<LayerRouting>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("layer " + std::to_string(expected[i].layer));
    EXPECT_EQ(actual[i].layer, expected[i].layer);
    EXPECT_EQ(actual[i].load, expected[i].load);
    EXPECT_EQ(actual[i].dropped, expected[i].dropped);
    EXPECT_NEAR(actual[i].entropy, expected[i].entropy, kLimit * expected[i].entropy);
    ASSERT_EQ(actual[i].losses.size(), expected[i].losses.size());
    for (std::size_t loss = 0; loss < expected[i].losses.size(); ++loss) {
      const auto& [name, value] = expected[i].losses[loss];
      EXPECT_EQ(actual[i].losses[loss].first, name);
      EXPECT_GT(value, 0) << name;
      EXPECT_NEAR(actual[i].losses[loss].second, value, kLimit * value) << name;
    }
  }
}

void expect_same_step(const TrainingResult& actual, const TrainingResult& expected) {
  EXPECT_LE(curve_distance(actual.losses, expected.losses), kLimit) << "loss";
  EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), kLimit) << "gradient norm";
  ASSERT_EQ(actual.routing.size(), 1);
  expect_same_routing(actual.routing[0], expected.routing.at(0));
  expect_gradients(actual, expected, kLimit);
}

void expect_one_rank(const ExpertLayout& layout) {
  SCOPED_TRACE(layout.text());
  expect_same_step(train_layout(layout), one_rank(layout));
}

TEST(ExpertLayouts, CoverEveryPairOfChoices) {
  std::set<std::array<std::int64_t, 4>> pairs;
  std::array<std::set<std::int64_t>, 10> values;
  for (const ExpertLayout& layout : pairwise_expert_layouts()) {
    const auto chosen = choices(layout);
    for (std::size_t a = 0; a < chosen.size(); ++a) {
      values.at(a).insert(chosen.at(a));
      for (std::size_t b = 0; b < a; ++b)
        pairs.insert({static_cast<std::int64_t>(b), chosen.at(b), static_cast<std::int64_t>(a),
                      chosen.at(a)});
    }
  }
  const std::array<std::size_t, 10> sizes{5, 4, 2, 2, 3, 9, 2, 3, 4, 3};
  std::size_t all = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    EXPECT_EQ(values.at(a).size(), sizes.at(a)) << "choice " << a;
    for (std::size_t b = 0; b < a; ++b) all += sizes.at(a) * sizes.at(b);
  }
  EXPECT_EQ(pairs.size(), all);
}

TEST(ExpertLayouts, TrainAsOneRankDoes) {
  const auto layouts = wants_all() ? all_expert_layouts() : pairwise_expert_layouts();
  RecordProperty("layouts", static_cast<int>(layouts.size()));
  for (const ExpertLayout& layout : layouts) expect_one_rank(layout);
}

TEST(ExpertLayouts, RandomOnesTrainAsOneRankDoes) {
  const unsigned seed = layout_seed();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<ExpertLayout> all = all_expert_layouts();
  for (int i = 0; i < 3; ++i) expect_one_rank(all[random() % all.size()]);
}

/// Choices that depend on the batch of a step or on the order of its tokens, over ranks that hold
/// other positions. The global loss has the shares of one data-parallel rank.
TEST(ExpertLayouts, RoutersThatCountAllTokensTrainOverCpAsOneRankDoes) {
  const std::vector<Flags> routers{
      {"--moe-router-load-balancing-type", "global_aux_loss", "--moe-aux-loss-coeff", "0.2"},
      {"--moe-router-load-balancing-type", "sinkhorn", "--moe-aux-loss-coeff", "0"},
      {"--moe-router-force-load-balancing", "--moe-expert-capacity-factor", "0.7",
       "--moe-token-drop-policy", "position"}};
  const TrainingOptions options{.dtype = at::kDouble};
  for (Flags router : routers) {
    SCOPED_TRACE(router[0] + " " + router[1]);
    router.insert(router.end(), {"--global-batch-size", "8"});
    const TrainingResult expected = train_layout({}, options, router);
    for (const std::int64_t cp : {2, 4}) {
      for (const auto tensor :
           {TensorParallelism::none, TensorParallelism::plain, TensorParallelism::sequence}) {
        if (!wants_all() && cp == 4 && tensor != TensorParallelism::sequence) continue;
        const ExpertLayout layout{.ep = 2, .tensor = tensor, .cp = cp};
        SCOPED_TRACE(layout.text());
        expect_same_step(train_layout(layout, options, router), expected);
      }
    }
  }
}

/// Three ranks of cp share a microbatch, and two ranks the experts: one of the pairs has tokens of
/// two microbatches.
TEST(ExpertLayouts, ExpertsOfTwoMicrobatchesTrainAsOneRankDoes) {
  const TrainingOptions options{.dtype = at::kDouble};
  const Flags length{"--seq-length", "24", "--global-batch-size", "8"};
  Flags more = length;
  more.insert(more.end(), {"--context-parallel-size", "3", "--ddp-average-in-collective"});
  const std::size_t padded = 3;
  const TrainingResult expected = train_layout({.drops = padded}, options, length);
  for (std::size_t dispatcher = 0; dispatcher < kDispatchers.size(); ++dispatcher) {
    const ExpertLayout layout{.ep = 2, .replicas = 3, .dispatcher = dispatcher, .drops = padded};
    SCOPED_TRACE(layout.text());
    expect_same_step(train_layout(layout, options, more), expected);
  }
}

/// Documents of 24 tokens in sequences of `length`, one in each, which the rest pads.
TrainingResult train_padded(std::int64_t length, const Flags& router, const ExpertLayout& layout) {
  static const TemporaryFolder folder;
  static const std::string corpus = [] {
    IndexedDatasetBuilder builder((folder / "equal").string(), TokenDtype::int32);
    for (std::int32_t document = 0; document < 32; ++document) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < 24; ++i) tokens.push_back((document * 31 + i * i) % 60);
      builder.add_document(tokens, std::vector<std::int32_t>{24});
    }
    builder.finalize();
    return (folder / "equal").string();
  }();
  Flags flags = common_flags();
  std::erase(flags, "--mock-data");
  const Flags data{"--data-path",
                   corpus,
                   "--split",
                   "100,0,0",
                   "--dataloader-inter-document-masking",
                   "--document-packing-strategy",
                   "bfd",
                   "--seq-length",
                   std::to_string(length),
                   "--micro-batch-size",
                   "2",
                   "--global-batch-size",
                   "16",
                   "--attention-dropout",
                   "0"};
  for (const Flags& part : {data, one_sgd_step(), router, layout.flags()})
    flags.insert(flags.end(), part.begin(), part.end());
  return train_in_layout(flags, layout.world_size(), {.dtype = at::kDouble});
}

/// Routers that count: all kinds of losses, biases and drops.
std::vector<Flags> counting_routers() {
  const Flags experts{"--num-experts",         "8", "--moe-router-topk", "2",
                      "--moe-ffn-hidden-size", "16"};
  std::vector<Flags> routers;
  for (const Flags& own :
       {Flags{"--moe-router-load-balancing-type", "aux_loss", "seq_aux_loss", "global_aux_loss",
              "--moe-aux-loss-coeff", "0.1", "0.2", "0.3", "--moe-z-loss-coeff", "0.01",
              "--moe-expert-capacity-factor", "0.8", "--recompute-granularity", "full",
              "--recompute-method", "uniform", "--recompute-num-layers", "1"},
        Flags{"--moe-router-load-balancing-type", "sinkhorn", "--moe-aux-loss-coeff", "0"},
        Flags{"--moe-router-load-balancing-type", "none", "--moe-aux-loss-coeff", "0",
              "--moe-router-score-function", "sigmoid", "--moe-router-enable-expert-bias",
              "--moe-expert-capacity-factor", "1.0", "--moe-pad-expert-input-to-capacity",
              "--moe-token-drop-policy", "position", "--moe-input-jitter-eps", "0.01",
              "--calculate-per-token-loss"}}) {
    routers.push_back(llama(experts));
    routers.back().insert(routers.back().end(), own.begin(), own.end());
  }
  return routers;
}

/// Sequences of 32 positions that hold 24 tokens train as those of 24 do, in any layout. The global
/// loss has the shares of one data-parallel rank, so none has two.
TEST(ExpertLayouts, PaddingTrainsNoRouter) {
  constexpr std::int64_t kTokens = 24, kPadded = 32;
  for (const Flags& router : counting_routers()) {
    SCOPED_TRACE(testing::PrintToString(router));
    const TrainingResult expected = train_padded(kTokens, router, {});
    for (const ExpertLayout& layout :
         {ExpertLayout{}, ExpertLayout{.ep = 2, .tensor = TensorParallelism::plain},
          ExpertLayout{.tensor = TensorParallelism::sequence, .pipeline = 1},
          ExpertLayout{.ep = 2, .cp = 2},
          ExpertLayout{.tensor = TensorParallelism::sequence, .pipeline = 3, .cp = 2}}) {
      SCOPED_TRACE(layout.text());
      expect_same_step(train_padded(kPadded, router, layout), expected);
    }
  }
}

/// With equal logits every token chooses the first experts: those of one rank, and the other ranks
/// get none.
TEST(ExpertLayouts, TiesThatSendAllTokensToOneRankTrainAsOneRankDoes) {
  const auto zero_routers = [](ParamStore& weights) {
    for (Parameter* parameter : weights.parameters()) {
      if (parameter->name().ends_with("router.weight")) at::Tensor(parameter->value()).zero_();
    }
  };
  const TrainingOptions zeroed{.dtype = at::kDouble, .prepare = zero_routers};
  const std::size_t top1 = 2, padded = 3;
  for (const std::size_t drops : {std::size_t{0}, padded}) {
    const TrainingResult expected = train_layout({.family = top1, .drops = drops}, zeroed);
    for (const LayerRouting& layer : expected.routing.at(0))
      EXPECT_EQ(layer.load[0] + layer.dropped, 32 * 16) << "of 32 samples of 16 tokens";
    for (std::size_t dispatcher = 0; dispatcher < kDispatchers.size(); ++dispatcher) {
      const ExpertLayout layout{.family = top1, .ep = 4, .dispatcher = dispatcher, .drops = drops};
      SCOPED_TRACE(layout.text());
      expect_same_step(train_layout(layout, zeroed), expected);
    }
  }
}

bool is_expert_weight(const std::string& name) {
  return name.find(".experts.") != std::string::npos;
}

/// In float32, where ranks differ in ep alone, only the weight gradients of experts have other
/// sums: those over all ranks' tokens in one GEMM. In the fast set each two of family, ep and
/// dispatcher meet.
TEST(ExpertLayouts, ExpertParallelismKeepsTheBits) {
  for (std::size_t family = 0; family < expert_families().size(); ++family) {
    const TrainingResult expected = train_layout({.family = family, .replicas = 8}, {});
    for (const std::int64_t ep : {2, 4, 8}) {
      for (std::size_t dispatcher = 0; dispatcher < kDispatchers.size(); ++dispatcher) {
        const std::size_t turn =
            family + static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(ep)));
        if (!wants_all() && (turn + dispatcher) % 3 != 0) continue;
        const ExpertLayout layout{
            .family = family, .ep = ep, .replicas = 8 / ep, .dispatcher = dispatcher};
        SCOPED_TRACE(layout.text());
        const TrainingResult actual = train_layout(layout, {});
        EXPECT_EQ(actual.losses, expected.losses);
        for (const auto& [name, after] : expected.after) {
          const at::Tensor& mine = actual.after.at(name);
          if (is_expert_weight(name)) {
            EXPECT_LE(relative_distance(mine, after), 1e-6) << name;
          } else {
            EXPECT_TRUE(mine.equal(after))
                << name << " differs by " << relative_distance(mine, after);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatron::layouts
