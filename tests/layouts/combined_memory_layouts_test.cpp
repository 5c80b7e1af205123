// Everything that saves memory at once, in random layouts: recomputation, offload of activations
// and of optimizer state, sharded gradients and weights, with tensor, pipeline, context and expert
// parallelism, have the losses and the updates of one rank in float64, dropout included.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "layouts/chosen_layouts.h"
#include "layouts/layout_run.h"

namespace megatron::layouts {
namespace {

constexpr double kLimit = 1e-12;  // as in layouts_test.cpp
constexpr std::int64_t kMostRanks = 8;

/// Draws from a list.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <class Items>
  const auto& of(const Items& items) {
    return items[random_() % std::size(items)];
  }
  bool coin() { return random_() % 2 == 0; }

 private:
  std::mt19937 random_;
};

struct Combination {
  std::size_t family = 0;
  std::int64_t tp = 1, cp = 1, dp = 1;
  std::size_t pipeline = 0;
  Flags flags = {};
  bool offloads_optimizer = false;

  std::int64_t world_size() const { return tp * cp * dp * pipelines()[pipeline].ranks; }
};

Flags recomputation(Draw& draw, bool has_experts) {
  const std::string modules[] = {"layernorm", has_experts ? "moe" : "mlp"};
  switch (draw.of(std::array{0, 1, 2, 3})) {
    case 0:
      return {"--recompute-granularity", "full", "--recompute-num-layers", "2"};
    case 1:
      return {"--recompute-granularity", "selective", "--recompute-modules", modules[0],
              modules[1]};
    case 2:
      return {"--activation-plan", "none,layernorm+offload,full+offload," + modules[1] + "+offload",
              "--min-offloaded-tensor-size", "0"};
    default:
      return {};
  }
}

/// Returns the flags of an optimizer whose state is offloaded: all of it, or the state of some
/// weights.
Flags offloaded_optimizer(Draw& draw) {
  Flags all{"--optimizer-cpu-offload", "--optimizer-offload-fraction",
            draw.of(std::array{"1", "0.5"})};
  if (draw.coin()) all.emplace_back("--overlap-cpu-optimizer-d2h-h2d");
  return all;
}

Combination draw_combination(Draw& draw) {
  constexpr std::array<std::size_t, 7> kFamilies{0, 1, 2, 4, 5, 7, 9};
  constexpr std::array<std::size_t, 6> kPipelines{0, 0, 1, 4, 5, 7};
  for (;;) {
    Combination one{.family = draw.of(kFamilies),
                    .tp = draw.of(std::array{1, 1, 2}),
                    .cp = draw.of(std::array{1, 1, 2}),
                    .dp = draw.of(std::array{2, 2, 4}),
                    .pipeline = draw.of(kPipelines)};
    if (one.world_size() > kMostRanks) continue;
    one.flags = {"--tensor-model-parallel-size",
                 std::to_string(one.tp),
                 "--context-parallel-size",
                 std::to_string(one.cp),
                 "--zero-stage",
                 draw.of(std::array{"1", "2", "3", "3"})};
    if (one.tp == 2 && draw.coin()) one.flags.emplace_back("--sequence-parallel");
    if (families()[one.family].has_experts && draw.coin())
      one.flags.insert(one.flags.end(), {"--expert-model-parallel-size", "2"});
    one.offloads_optimizer = draw.coin();
    const Flags recomputed = recomputation(draw, families()[one.family].has_experts);
    for (const Flags& more : {pipelines()[one.pipeline].flags(), recomputed,
                              one.offloads_optimizer ? offloaded_optimizer(draw) : Flags{}})
      one.flags.insert(one.flags.end(), more.begin(), more.end());
    if (one.offloads_optimizer || std::ranges::count(recomputed, "--activation-plan") > 0)
      one.flags.insert(one.flags.end(),
                       {"--offload-folder", std::filesystem::temp_directory_path().string()});
    return one;
  }
}

/// Returns two steps with momentum, so that the second update reads state of the first. W − W' is
/// the sum of both updates. A learning rate of 1 leaves them large beside the rounding of W.
Flags two_momentum_steps() {
  Flags all = one_sgd_step();
  all.insert(all.end(), {"--sgd-momentum", "0.9", "--lr", "1", "--train-iters", "2"});
  return all;
}

TrainingResult train(const Combination& one, const Flags& more, std::int64_t world_size) {
  Flags all = one.offloads_optimizer ? two_momentum_steps() : one_sgd_step();
  all.insert(all.end(), more.begin(), more.end());
  return train_in_layout(families()[one.family].run_flags(all), world_size, {.dtype = at::kDouble});
}

TEST(CombinedMemoryLayouts, TrainAsOneRankDoes) {
  const unsigned seed = layout_seed();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  Draw draw(seed);
  const int count = wants_all() ? 200 : 10;
  for (int i = 0; i < count; ++i) {
    const Combination one = draw_combination(draw);
    std::string words = families()[one.family].name + ", dp " + std::to_string(one.dp);
    for (const std::string& flag : one.flags) words += " " + flag;
    SCOPED_TRACE(words);
    const TrainingResult expected = train(one, {}, 1),
                         actual = train(one, one.flags, one.world_size());
    EXPECT_LE(curve_distance(actual.losses, expected.losses), kLimit) << "loss";
    EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), kLimit) << "gradient norm";
    expect_gradients(actual, expected, kLimit);
  }
}

}  // namespace
}  // namespace megatron::layouts
