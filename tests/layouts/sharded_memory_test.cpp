// Sharded weights and gradients hold what they promise: at the peak of a step a rank has its part
// of the state, two units of the model and the activations.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "layouts/layout_run.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/rank_memory.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

using layouts::Flags;

constexpr std::int64_t kRanks = 4;

/// What tensors hold, in bytes, summed over the ranks of a run, which are threads of this process.
struct Peak {
  double state = 0;  ///< weights, gradients, main weights and optimizer state
  double peak = 0;   ///< of the second step
  double unit = 0;   ///< weights and gradients of the largest unit of the model
};

/// A model in which eight layers of 3.2 MB of weights are nearly all.
Flags wide_model(const Flags& more) {
  Flags flags = layouts::common_flags();
  const Flags wide{"--num-layers",
                   "8",
                   "--hidden-size",
                   "256",
                   "--ffn-hidden-size",
                   "1024",
                   "--seq-length",
                   "64",
                   "--max-position-embeddings",
                   "64",
                   "--train-iters",
                   "2",
                   "--global-batch-size"};
  flags.insert(flags.end(), wide.begin(), wide.end());
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Peak measure(const Flags& flags, std::int64_t ranks) {
  const RunConfig run = read_run(flags, ranks);
  Peak result;
  std::mutex mutex;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer =
        set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    const auto meet = [&] { all_reduce_(trainer.plan.rank.world, at::ones({1}), "test"); };
    layouts::make_step(trainer);
    meet();
    if (communicators.rank() == 0) reset_peak_tensor_memory(c10::kCPU);
    meet();
    layouts::make_step(trainer);
    meet();
    const ModelMemory held = model_memory(*trainer.state.weights, trainer.state.optimizer.get());
    const std::scoped_lock lock(mutex);
    result.state += held.parameters + held.gradients + held.main_parameters + held.optimizer_state;
    if (communicators.rank() != 0) return;
    result.peak = tensor_memory(c10::kCPU).peak_bytes;
    std::map<std::size_t, double> units;
    for (const ParamBucket& bucket : trainer.state.weights->buckets())
      result.unit = std::max(result.unit,
                             units[bucket.unit] += 2 * static_cast<double>(bucket.value_bytes()));
  });
  return result;
}

TEST(ShardedMemory, PeakIsThePartOfTheStateTwoUnitsAndActivations) {
  use_caching_cpu_allocator();
  const Peak one = measure(wide_model({"1"}), 1);
  const double activations = one.peak - one.state;
  for (const Flags& overlap : {Flags{}, Flags{"--overlap-grad-reduce", "--overlap-param-gather"}}) {
    Flags flags = wide_model({"4", "--use-megatron-fsdp"});
    flags.insert(flags.end(), overlap.begin(), overlap.end());
    const Peak four = measure(flags, kRanks);
    EXPECT_LT(four.state, 1.01 * one.state) << "the ranks together hold the state once";
    // All ranks together: the state, and for each rank two units and the activations. Ranks meet
    // at collectives, so that their peaks come at the same time, but for 5 %.
    EXPECT_LT(four.peak, 1.05 * (one.state + kRanks * (2 * four.unit + activations)));
    EXPECT_LT(four.unit, 0.1 * one.state) << "the bound means something";
    RecordProperty("peak", std::to_string(four.peak / one.peak));
  }
}

TEST(ShardedMemory, PredictedPartsAreWhatARankHolds) {
  for (const Flags& stage : {Flags{"--zero-stage", "2"}, Flags{"--use-megatron-fsdp"},
                             Flags{"--use-megatron-fsdp", "--num-distributed-optimizer-instances",
                                   "2", "--outer-dp-sharding-strategy", "optim"}}) {
    for (const Flags& type : {Flags{}, Flags{"--bf16"}}) {
      Flags flags = wide_model({"4"});
      for (const Flags& more : {stage, type}) flags.insert(flags.end(), more.begin(), more.end());
      const RunConfig run = read_run(flags, kRanks);
      run_rank_threads(kRanks, [&](Communicators& communicators) {
        std::ostream silent(nullptr);
        const Trainer trainer =
            set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
        const TrainingPlan& plan = trainer.plan;
        const ModelMemory held =
            model_memory(*trainer.state.weights, trainer.state.optimizer.get());
        LayerTraces traces(*plan.family);
        const RankMemory predicted =
            predict_rank_memory(plan.settings, traces, plan.rank, plan.pipeline.layout(), 1);
        EXPECT_EQ(predicted.parameters, held.parameters);
        EXPECT_EQ(predicted.main_parameters, held.main_parameters);
        EXPECT_EQ(predicted.gradients, held.gradients);
        EXPECT_EQ(predicted.optimizer_state, held.optimizer_state);
      });
    }
  }
}

}  // namespace
}  // namespace megatron
