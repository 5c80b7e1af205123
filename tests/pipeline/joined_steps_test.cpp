// Combined 1F1B: a forward and a backward that overlap are bit-identical to steps that run one
// after the other, however long anything takes.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "pipeline/staged_gpt.h"

namespace megatron {
namespace {

TransformerConfig untied_gpt() {
  TransformerConfig config = tiny_gpt();
  config.num_layers = 4;
  config.untie_embeddings_and_output_weights = true;
  return config;
}

/// Returns a run on two stages of two tensor-parallel ranks each.
StagedRun joined(const std::string& schedule, std::int64_t num_chunks) {
  return {.layout = even_layout(schedule, 2, num_chunks, 4),
          .schedule = schedule,
          .num_tensor_ranks = 2};
}

TEST(JoinedSteps, GiveTheBitsOfStepsThatRunApart) {
  const TransformerConfig config = untied_gpt();
  const auto batch = numbered_batches(5, config.vocab_size);
  const StepOutcome plain =
      run_staged(config, batch, {.layout = single_stage_layout(4), .num_tensor_ranks = 2});
  for (StagedRun run :
       {joined("combined-1f1b", 1), joined("combined-1f1b", 2), joined("dualpipe-v", 2)}) {
    SCOPED_TRACE(run.schedule);
    for (const bool sequence_parallel : {false, true}) {
      run.sequence_parallel = sequence_parallel;
      run.takes_turns = false;
      const StepOutcome apart = run_staged(config, batch, run);
      run.takes_turns = true;
      expect_same_bits(run_staged(config, batch, run), apart);
      if (!sequence_parallel) expect_same_bits(apart, plain);
    }
  }
}

TEST(JoinedSteps, GiveTheBitsOfStepsThatRunApartInBf16) {
  const TransformerConfig config = untied_gpt();
  const auto batch = numbered_batches(5, config.vocab_size);
  StagedRun run = joined("combined-1f1b", 1);
  run.dtype = c10::kBFloat16;
  const StepOutcome apart = run_staged(config, batch, run);
  run.takes_turns = true;
  expect_same_bits(run_staged(config, batch, run), apart);
}

/// Delays every op of a forward by a different time on every rank and in every run.
class RandomDelays : public UnitHooks {
 public:
  explicit RandomDelays(unsigned seed) : random_(seed) {}
  void after_op(const std::string& /*op*/, const at::Tensor& /*output*/) override {
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 300)(random_)));
  }

 private:
  std::mt19937 random_;
};

/// If the order of collectives differed between the ranks of a layer, the transport would throw.
TEST(JoinedSteps, DoNotDependOnTime) {
  const TransformerConfig config = untied_gpt();
  const auto batch = numbered_batches(4, config.vocab_size);
  StagedRun run = joined("combined-1f1b", 1);
  run.takes_turns = true;
  const StepOutcome first = run_staged(config, batch, run);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (unsigned i = 0; i < 10; ++i) {
    run.hooks_of = [&](const Rank& rank) {
      return std::make_unique<RandomDelays>(seed + 4 * i + static_cast<unsigned>(rank.index));
    };
    expect_same_bits(run_staged(config, batch, run), first);
  }
}

/// Records every pair of one rank: which steps begin and end, and the threads of the forwards.
class PairListener : public StepListener {
 public:
  void begin(const ScheduleStep& step) override {
    log += step.kind == StepKind::forward ? "F" : "B";
  }
  void end(const ScheduleStep& step) override { log += step.kind == StepKind::forward ? "f" : "b"; }
  std::string log;
};

TEST(JoinedSteps, BeginAndEndInsideEachOther) {
  const TransformerConfig config = untied_gpt();
  const auto batch = numbered_batches(4, config.vocab_size);
  StagedRun run = joined("combined-1f1b", 1);
  for (const bool takes_turns : {false, true}) {
    std::array<PairListener, 4> listeners;
    run.takes_turns = takes_turns;
    run.listener_of = [&](const Rank& rank) {
      return &listeners[static_cast<std::size_t>(rank.index)];
    };
    run_staged(config, batch, run);
    EXPECT_EQ(listeners[0].log, takes_turns ? "FfFfFfFBbfBbBbBb" : "FfFfFfFfBbBbBbBb");
    EXPECT_EQ(listeners[2].log, takes_turns ? "FfFBbfFBbfFBbfBb" : "FfFfBbFfBbFfBbBb");
    EXPECT_EQ(listeners[3].log, listeners[2].log);
  }
}

}  // namespace
}  // namespace megatron
