// The padding of BERT's samples, which the layers leave out by default, changes nothing: loss and
// gradients are those of one rank that computes it, in every layout, dropout included.
#include <gtest/gtest.h>

#include "layouts/layout_run.h"

namespace megatron::layouts {
namespace {

/// Trains one step on samples of 16 positions, most of which have fewer tokens.
TrainingResult train(const Flags& more, std::int64_t world_size,
                     std::optional<c10::ScalarType> dtype) {
  Flags all = Family{"bert", bert(), false, "bert"}.run_flags(one_sgd_step());
  const Flags samples{"--micro-batch-size", "4",  "--global-batch-size", "16",
                      "--short-seq-prob",   "0.9"};
  for (const Flags& flags : {samples, more}) all.insert(all.end(), flags.begin(), flags.end());
  return train_in_layout(all, world_size, {.dtype = dtype});
}

struct Unpadded {
  Flags flags;
  std::int64_t world_size;
};
const std::vector<Unpadded>& unpadded_layouts() {
  static const std::vector<Unpadded> all = {
      {{}, 1},
      {{"--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1"},
       1},
      {{"--use-distributed-optimizer"}, 2},
      {{"--tensor-model-parallel-size", "2"}, 2},
      {{"--tensor-model-parallel-size", "4", "--sequence-parallel"}, 4},
      {{"--tensor-model-parallel-size", "2", "--sequence-parallel", "--tp-comm-overlap"}, 2},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "1f1b"}, 2},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-v",
        "--tensor-model-parallel-size", "2", "--sequence-parallel"},
       4},
      {{"--context-parallel-size", "2"}, 2}};
  return all;
}

TEST(UnpaddedLayouts, TrainAsPaddedSamplesDo) {
  const TrainingResult padded = train({"--keep-padding"}, 1, at::kDouble);
  for (const auto& [flags, world_size] : unpadded_layouts()) {
    SCOPED_TRACE(testing::PrintToString(flags));
    const TrainingResult actual = train(flags, world_size, at::kDouble);
    EXPECT_EQ(actual.loss_names, (std::vector<std::string>{"lm loss", "sop loss"}));
    EXPECT_LE(curve_distance(actual.losses, padded.losses), 1e-12);
    expect_gradients(actual, padded, 1e-11);
  }
}

/// The dropout of a class's head draws by samples, behind which rows of padding may lie.
TEST(UnpaddedLayouts, TrainClassesAsPaddedSamplesDo) {
  const Flags task{"--task", "classify", "--num-classes", "3"};
  const auto run = [&](Flags flags, std::int64_t world_size) {
    flags.insert(flags.end(), task.begin(), task.end());
    return train(flags, world_size, at::kDouble);
  };
  const TrainingResult padded = run({"--keep-padding"}, 1);
  for (const std::size_t layout : {0U, 4U, 7U}) {
    const auto& [flags, world_size] = unpadded_layouts()[layout];
    SCOPED_TRACE(testing::PrintToString(flags));
    const TrainingResult actual = run(flags, world_size);
    EXPECT_LE(curve_distance(actual.losses, padded.losses), 1e-12);
    expect_gradients(actual, padded, 1e-11);
  }
}

/// The fused kernels compute float32.
TEST(UnpaddedLayouts, TrainAsPaddedSamplesDoInFloat32) {
  const TrainingResult padded = train({"--keep-padding"}, 1, {}), actual = train({}, 1, {});
  EXPECT_LE(curve_distance(actual.losses, padded.losses), 1e-6);
  expect_gradients(actual, padded, 1e-5);
}

}  // namespace
}  // namespace megatron::layouts
