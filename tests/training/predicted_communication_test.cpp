// The bytes that the planner predicts for context parallelism against those that a step counts.
#include <gtest/gtest.h>

#include "layouts/layout_run.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/planner/communication_volume.h"
#include "megatron/planner/rank_memory.h"
#include "megatron/training/run/training_plan.h"
#include "small_run.h"

namespace megatron {
namespace {

/// Returns the part of the bytes of a call that leaves the rank: the counters hold the larger of
/// its two tensors, and both ends of a message.
double sent_bytes(const CommCount& row, const Rank& rank) {
  const std::int64_t ranks = row.axis == rank.cp_a2a.name   ? rank.cp_a2a.size
                             : row.axis == rank.cp_p2p.name ? rank.cp_p2p.size
                                                            : rank.cp.size;
  if (row.operation == "recv") return 0;
  const double bytes = static_cast<double>(row.bytes);
  return row.operation == "send"
             ? bytes
             : bytes * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

/// Runs a step of 2 microbatches and compares what rank 0 sends over cp.
void expect_predicted_volume(std::int64_t cp, std::int64_t tp, std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--hidden-size", "64", "--num-attention-heads", "8", "--seq-length",
                             "32", "--context-parallel-size", std::to_string(cp),
                             "--tensor-model-parallel-size", std::to_string(tp)});
  const RunConfig run = read_run(small_run::flags(flags), cp * tp);
  run_rank_threads(cp * tp, [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer =
        set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    communicators.counters().take();
    layouts::make_step(trainer);
    if (communicators.rank() != 0) return;
    const TrainingPlan& plan = trainer.plan;
    double sent = 0;
    for (const CommCount& row : communicators.counters().take())
      if (row.axis.starts_with("cp")) sent += sent_bytes(row, plan.rank);
    LayerTraces traces(*plan.family);
    const CommunicationVolume predicted =
        activation_volume(plan.settings, plan.rank, layers_of(plan.pipeline.layout(), 0), {},
                          trainer.state.batch.num_microbatches, traces);
    EXPECT_GT(sent, 0);
    EXPECT_EQ(predicted.context, sent) << testing::PrintToString(flags);
  });
}

TEST(PredictedCommunication, OfContextParallelismIsWhatAStepSends) {
  const std::vector<std::string> grouped{"--bf16", "--group-query-attention", "--num-query-groups",
                                         "2"};
  for (const char* exchange : {"p2p", "all_gather", "a2a"}) {
    expect_predicted_volume(4, 1, {"--cp-comm-type", exchange});
    std::vector<std::string> flags = grouped;
    flags.insert(flags.end(), {"--cp-comm-type", exchange});
    expect_predicted_volume(4, 1, flags);
    expect_predicted_volume(2, 2, flags);
  }
  const std::vector<std::string> levels{"--hierarchical-context-parallel-sizes", "2", "2"};
  std::vector<std::string> flags{"--cp-comm-type", "a2a+p2p"};
  flags.insert(flags.end(), levels.begin(), levels.end());
  expect_predicted_volume(4, 1, flags);
  expect_predicted_volume(4, 1, {"--cp-comm-type", "a2a", "p2p"});
}

}  // namespace
}  // namespace megatron
