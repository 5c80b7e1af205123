// What data-parallel ranks divide among them never changes the mathematics: every stage of ZeRO in
// every family and schedule has the gradients of one rank, and the bits of whole gradients and
// weights where the order of sums is the same.
//
// In the fast set each family takes every third layout, in turn; MEGATRON_TEST_LAYOUTS=all takes
// all.
#include <gtest/gtest.h>

#include "layouts/chosen_layouts.h"
#include "layouts/layout_run.h"

namespace megatron::layouts {
namespace {

Flags joined(std::initializer_list<Flags> parts) {
  Flags all;
  for (const Flags& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// A layout of the ranks, without what they divide.
struct Ranks {
  std::int64_t world_size;
  Flags flags;
  bool needs_experts = false, divides_sequences = false;
};

const std::vector<Ranks>& rank_layouts() {
  static const std::vector<Ranks> all{
      {2, {}},
      {4, {}},
      {4, {"--tensor-model-parallel-size", "2", "--sequence-parallel"}},
      {4, {"--context-parallel-size", "2"}, false, true},
      {4, {"--num-distributed-optimizer-instances", "2"}},
      {4, {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "1f1b"}},
      {4, {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-h1"}},
      {4, {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-v"}},
      {4,
       {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "interleaved",
        "--num-virtual-stages-per-pipeline-rank", "2"}},
      {4, {"--expert-model-parallel-size", "2"}, true},
      {4, {"--expert-model-parallel-size", "4"}, true},
      {4,
       {"--tensor-model-parallel-size", "2", "--expert-model-parallel-size", "2",
        "--expert-tensor-parallel-size", "1"},
       true},
  };
  return all;
}

/// The stages that are new beside whole gradients, with what overlaps.
const std::vector<Flags>& stages() {
  static const std::vector<Flags> all{
      {"--data-parallel-sharding-strategy", "optim_grads"},
      {"--zero-stage", "2", "--overlap-grad-reduce"},
      {"--use-megatron-fsdp"},
      {"--use-megatron-fsdp", "--overlap-grad-reduce", "--overlap-param-gather",
       "--ddp-bucket-size", "2000"},
      {"--use-torch-fsdp2", "--overlap-grad-reduce", "--overlap-param-gather",
       "--suggested-communication-unit-size", "20000"},
  };
  return all;
}

/// Returns the index of a family.
std::size_t family_named(const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(families(), name, &Family::name) -
                                  families().begin());
}

std::string text_of(const Flags& flags) {
  std::string text;
  for (const std::string& flag : flags) text += " " + flag;
  return text;
}

TrainingResult train(std::size_t family, const Flags& more, std::int64_t world_size,
                     std::optional<c10::ScalarType> dtype = {}) {
  return train_in_layout(families()[family].run_flags(more), world_size, {.dtype = dtype});
}

/// In float64 the order of sums over microbatches and ranks is all that differs.
TEST(FsdpLayouts, EveryStageHasTheGradientsOfOneRank) {
  for (std::size_t family = 0; family < families().size(); ++family) {
    const TrainingResult expected = train(family, one_sgd_step(), 1, at::kDouble);
    std::size_t turn = family;
    for (std::size_t i = 0; i < rank_layouts().size(); ++i) {
      const Ranks& ranks = rank_layouts()[i];
      if (ranks.needs_experts && !families()[family].has_experts) continue;
      if (ranks.divides_sequences && !families()[family].has_one_sequence()) continue;
      if (i % 3 != family % 3 && !wants_all()) continue;
      const Flags flags = joined({ranks.flags, stages()[turn++ % stages().size()], one_sgd_step()});
      SCOPED_TRACE(families()[family].name + ", " + std::to_string(ranks.world_size) + " ranks," +
                   text_of(flags));
      const TrainingResult actual = train(family, flags, ranks.world_size, at::kDouble);
      EXPECT_LE(curve_distance(actual.losses, expected.losses), 1e-12);
      expect_gradients(actual, expected, 1e-12);
    }
  }
}

void expect_equal(const TrainingResult& actual, const TrainingResult& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.grad_norms, expected.grad_norms);
  for (const auto& [name, after] : expected.after)
    EXPECT_TRUE(actual.after.at(name).equal(after))
        << name << " differs by " << relative_distance(actual.after.at(name), after);
}

/// With one microbatch per rank, gradients are summed over ranks in the same order. AdamW with
/// clipping then gives the same weights, step after step.
TEST(FsdpLayouts, OneMicrobatchHasTheBitsOfWholeGradientsAndWeights) {
  const Flags steps{"--train-iters", "3"};
  for (const char* family_name : {"gpt", "mixtral", "llama"}) {
    const std::size_t family = family_named(family_name);
    for (const Flags& type : {Flags{}, Flags{"--bf16"}}) {
      for (const std::int64_t ranks : {4, 2}) {
        if ((ranks == 2 || family == family_named("llama")) && !wants_all()) continue;
        const Flags one_each{"--global-batch-size", std::to_string(ranks)};
        const TrainingResult whole = train(family, joined({one_each, steps, type}), ranks);
        for (const Flags& stage : stages()) {
          SCOPED_TRACE(std::string(family_name) + ", " + std::to_string(ranks) + " ranks," +
                       text_of(joined({stage, type})));
          expect_equal(train(family, joined({one_each, steps, type, stage}), ranks), whole);
        }
      }
    }
  }
}

/// Joined steps of two microbatches contribute by turns.
TEST(FsdpLayouts, CombinedScheduleTakesShardedGradients) {
  const std::size_t family = family_named("mixtral");
  const Flags combined{"--pipeline-model-parallel-size",
                       "2",
                       "--pipeline-schedule",
                       "combined-1f1b",
                       "--zero-stage",
                       "2",
                       "--expert-model-parallel-size",
                       "2"};
  const TrainingResult expected = train(family, one_sgd_step(), 1, at::kDouble);
  expect_gradients(train(family, joined({combined, one_sgd_step()}), 4, at::kDouble), expected,
                   1e-12);
}

/// HSDP: weights are sharded within an instance; instances hold the same weights, and optionally
/// divide the optimizer state.
TEST(FsdpLayouts, InstancesTrainAsOneRankDoes) {
  const Flags instances{"--use-megatron-fsdp", "--num-distributed-optimizer-instances", "2"},
      steps{"--train-iters", "4"};
  for (const char* name : {"gpt", "deepseek"}) {
    const std::size_t family = family_named(name);
    const TrainingResult expected = train(family, steps, 1, at::kDouble);
    for (const Flags& outer :
         {Flags{}, Flags{"--outer-dp-sharding-strategy", "optim"},
          Flags{"--outer-dp-sharding-strategy", "optim", "--tensor-model-parallel-size", "2"}}) {
      SCOPED_TRACE(name + text_of(outer));
      const TrainingResult actual =
          train(family, joined({instances, outer, steps}), 8, at::kDouble);
      // AdamW's first steps divide gradients by their size: where one is near 0, its rounding
      // shows.
      EXPECT_LE(curve_distance(actual.losses, expected.losses), 1e-9);
      EXPECT_LE(curve_distance(actual.grad_norms, expected.grad_norms), 1e-9);
    }
  }
}

/// In bf16, instances that divide the optimizer state have the bits of those that hold it whole.
TEST(FsdpLayouts, DividedOptimizerStateHasTheBitsOfWhole) {
  const Flags common{"--use-megatron-fsdp",
                     "--num-distributed-optimizer-instances",
                     "2",
                     "--train-iters",
                     "3",
                     "--bf16"};
  const TrainingResult whole = train(0, common, 4);
  expect_equal(train(0, joined({common, {"--outer-dp-sharding-strategy", "optim"}}), 4), whole);
}

/// What the units of a rank gathered and sent in the second of two steps.
struct Traffic {
  std::vector<std::int64_t> gathers;  ///< of each unit, in the order of backward
  std::int64_t unread = 0, gathered_bytes = 0, reduced_bytes = 0, weight_bytes = 0;
};

Traffic second_step(std::size_t family, const Flags& more, std::int64_t ranks) {
  const RunConfig run =
      read_run(families()[family].run_flags(joined({{"--train-iters", "2"}, more})), ranks);
  Traffic traffic;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer =
        set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    make_step(trainer);
    const UnitValues& values = *trainer.state.weights->unit_values();
    const UnitValues::Counters before = values.counters();
    communicators.counters().take();
    make_step(trainer);
    if (communicators.rank() != 0) return;
    traffic.unread = values.counters().unread - before.unread;
    for (std::size_t u = 0; u < before.gathers.size(); ++u)
      traffic.gathers.push_back(values.counters().gathers[u] - before.gathers[u]);
    for (const CommCount& row : communicators.counters().take()) {
      if (row.what == "weights of a unit") traffic.gathered_bytes += row.bytes;
      if (row.what == "gradients") traffic.reduced_bytes += row.bytes;
    }
    for (const ParamBucket& bucket : trainer.state.weights->buckets())
      traffic.weight_bytes += bucket.value_bytes();
  });
  return traffic;
}

/// A collective of Ψ bytes over d ranks sends Ψ(d − 1)/d from each; counters count Ψ. Layers are
/// gathered for forward and for backward. The output layer is read in forward alone, which computes
/// its gradient; the final norm, read just before it, is still there when backward begins; the
/// embedding's backward reads no weight.
TEST(FsdpLayouts, AStepSendsAtMostThreeTimesTheWeights) {
  const Flags fsdp{"--use-megatron-fsdp", "--global-batch-size", "4"};
  for (const Flags& overlap : {Flags{}, Flags{"--overlap-grad-reduce", "--overlap-param-gather"}}) {
    const Traffic step = second_step(family_named("llama"), joined({fsdp, overlap}), 4);
    // output layer, final norm, 4 layers, embedding
    EXPECT_EQ(step.gathers, (std::vector<std::int64_t>{1, 1, 2, 2, 2, 2, 1})) << text_of(overlap);
    EXPECT_EQ(step.unread, 0);
    EXPECT_EQ(step.reduced_bytes, step.weight_bytes);
    EXPECT_LE(step.gathered_bytes, 2 * step.weight_bytes);
  }
}

TEST(FsdpLayouts, NothingIsGatheredTwiceWithinAUnit) {
  const Flags fsdp{"--use-megatron-fsdp", "--overlap-grad-reduce", "--overlap-param-gather"};
  // Two microbatches on each of 4 ranks: every layer at most once per pass.
  for (const char* name : {"gpt", "deepseek", "switch"}) {
    for (const std::int64_t count : second_step(family_named(name), fsdp, 4).gathers)
      EXPECT_LE(count, 2 * 2) << name;
  }
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Flags pipeline{"--pipeline-model-parallel-size", "2", "--pipeline-schedule", schedule};
    const Traffic step = second_step(family_named("llama"), joined({fsdp, pipeline}), 4);
    for (const std::int64_t count : step.gathers) EXPECT_LE(count, 2 * 4) << schedule;
    EXPECT_EQ(step.unread, 0) << schedule;
  }
}

}  // namespace
}  // namespace megatron::layouts
