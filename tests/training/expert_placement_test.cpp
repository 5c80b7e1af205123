// Moving experts between ranks changes neither a bit of the weights, of the optimizer's state and
// of the checkpoint, nor the losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <regex>

#include "layouts/layout_run.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using Flags = std::vector<std::string>;

constexpr std::int64_t kRanks = 4;

struct Outcome {
  std::string log;
  layouts::Tensors weights;  ///< the whole model
};

/// Trains 8 experts on 4 ranks for 8 iterations.
Outcome train_on_ranks(const Flags& more) {
  Flags flags{"--num-experts",
              "8",
              "--moe-router-topk",
              "2",
              "--expert-model-parallel-size",
              "2",
              "--moe-token-dispatcher-type",
              "alltoall",
              "--eval-iters",
              "0",
              "--global-batch-size",
              "16"};
  flags.insert(flags.end(), more.begin(), more.end());
  const RunConfig run = read_run(small_run::flags(flags), kRanks);
  Outcome outcome;
  std::mutex mutex;
  run_rank_threads(kRanks, [&](Communicators& communicators) {
    std::ostringstream out;
    Trainer trainer =
        set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    EXPECT_EQ(train(trainer, out), 0);
    trainer.state.optimizer->main_parameters().wait_all_gather_params();
    const std::scoped_lock lock(mutex);
    layouts::add_part(*trainer.state.weights, layouts::local_weights(*trainer.state.weights),
                      outcome.weights);
    if (communicators.rank() == kRanks - 1) outcome.log = out.str();
  });
  return outcome;
}

std::vector<std::string> losses_of(const std::string& log) {
  static const std::regex line("lm loss: [0-9.E+-]+|grad norm: [0-9.]+");
  std::vector<std::string> found;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i)
    found.push_back(i->str());
  return found;
}

std::int64_t num_moved(const std::string& log) {
  static const std::regex line("([0-9]+) of [0-9]+ experts moved");
  std::int64_t moved = 0;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i)
    moved += std::stoll((*i)[1]);
  return moved;
}

struct PlacementCase {
  const char* name;
  Flags flags;
};

class ExpertPlacementRuns : public testing::TestWithParam<PlacementCase> {};

TEST_P(ExpertPlacementRuns, KeepTheBits) {
  const TemporaryFolder root;
  const auto train = [&](const char* folder, const Flags& more) {
    Flags flags = GetParam().flags;
    flags.insert(flags.end(), more.begin(), more.end());
    flags.insert(flags.end(), {"--save", (root / folder).string()});
    return train_on_ranks(flags);
  };
  const Outcome fixed = train("fixed", {});
  const Outcome moving = train("moving", {"--moe-expert-placement-interval", "2"});
  EXPECT_GE(num_moved(moving.log), 2) << moving.log;
  ASSERT_EQ(losses_of(fixed.log).size(), 16u) << fixed.log;
  EXPECT_EQ(losses_of(moving.log), losses_of(fixed.log));
  for (const auto& [name, weight] : fixed.weights)
    EXPECT_TRUE(moving.weights.at(name).equal(weight)) << name;

  const auto left = open_weights(*find_checkpoint(root / "fixed")),
             right = open_weights(*find_checkpoint(root / "moving"));
  for (const WeightInfo& info : left->weights())
    EXPECT_TRUE(left->read(info.name).equal(right->read(info.name))) << info.name;

  // Both continue alike, from the optimizer's state too.
  const Flags on{"--train-iters", "10", "--override-opt-param-scheduler"};
  const auto go_on = [&](const char* folder, Flags flags) {
    flags.insert(flags.end(), on.begin(), on.end());
    flags.insert(flags.end(), {"--load", (root / folder).string()});
    return train(folder, flags);
  };
  const Outcome fixed_end = go_on("fixed", {}),
                moving_end = go_on("moving", {"--moe-expert-placement-interval", "1"});
  ASSERT_EQ(losses_of(fixed_end.log).size(), 4u) << fixed_end.log;
  EXPECT_EQ(losses_of(moving_end.log), losses_of(fixed_end.log));
  for (const auto& [name, weight] : fixed_end.weights)
    EXPECT_TRUE(moving_end.weights.at(name).equal(weight)) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpertPlacementRuns,
    testing::Values(PlacementCase{"fp32", {}}, PlacementCase{"bf16", {"--bf16"}},
                    PlacementCase{"distributed_optimizer",
                                  {"--use-distributed-optimizer", "--overlap-grad-reduce",
                                   "--overlap-param-gather", "--ddp-bucket-size", "2000"}},
                    PlacementCase{"bf16_distributed_optimizer",
                                  {"--bf16", "--use-distributed-optimizer", "--swiglu",
                                   "--disable-bias-linear"}},
                    PlacementCase{"expert_tensor_parallel",
                                  {"--tensor-model-parallel-size", "2",
                                   "--expert-tensor-parallel-size", "2"}},
                    PlacementCase{"stages", {"--pipeline-model-parallel-size", "2"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatron
