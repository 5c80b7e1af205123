
#include "megatron/training/loop/setup.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <sstream>

#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/gpt_model.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/run/training_plan.h"
#include "support/message_of.h"
#include "training/small_run.h"

namespace megatron {
namespace {

/// Returns whether malloc maps a large block, as it does unless M_MMAP_MAX is set.
bool maps_large_blocks() {
  const std::size_t before = mallinfo2().hblks;
  void* volatile block = std::malloc(std::size_t{64} << 20);
  const bool is_mapped = mallinfo2().hblks > before;
  std::free(block);
  return is_mapped;
}

/// The allocators of a process belong to its program, which may be another one than megatron.
TEST(SetUp, LeavesTheAllocatorsOfTheProcess) {
  c10::Allocator* const earlier = c10::GetAllocator(c10::kCPU);
  c10::Allocator* const plain = c10::GetDefaultCPUAllocator();
  constexpr std::uint8_t kHighest = 100;
  c10::SetAllocator(c10::kCPU, plain, kHighest);
  const bool mapped = maps_large_blocks();
  std::ostringstream out;
  set_up(read_run(small_run::flags({})), out);
  EXPECT_EQ(c10::GetAllocator(c10::kCPU), plain);
  EXPECT_EQ(maps_large_blocks(), mapped);
  c10::SetAllocator(c10::kCPU, earlier, kHighest);
}

int num_built_models = 0;

ModelSpec counted_spec(const TransformerConfig& config) {
  ++num_built_models;
  return gpt_spec(config);
}

/// Setup names no family: it builds whatever the plan's family makes.
TEST(SetUp, BuildsTheModelOfAFamilyThatTheTableDoesNotHave) {
  ModelFamily family = find_model_family("gpt");
  family.title = "Counted";
  family.spec = counted_spec;
  std::ostringstream out;
  StartupWarnings warnings;
  ResolvedRun run =
      resolve_run(read_run(small_run::flags({})), {.device = OpenedDevice{}}, warnings, out);
  run.plan.family = &family;
  TrainingState state;
  Timers timers(0, TimerStatistic::minmax);
  build_state(run.plan, state, {.timers = timers, .warnings = warnings}, out);
  EXPECT_EQ(num_built_models, 1);
  EXPECT_NE(out.str().find("building Counted model ..."), std::string::npos) << out.str();
  EXPECT_EQ(state.model->config().hidden_size, 32);
  EXPECT_EQ(state.batch.num_microbatches, 2);
}

TEST(SetUp, RefusesAFamilyThatDoesNotExist) {
  RunConfig run = read_run(small_run::flags({}));
  run.options.model = "retro";
  std::ostringstream out;
  EXPECT_EQ(message_of([&] { set_up(run, out); }),
            "model: must be one of gpt, hybrid, bert, t5, got 'retro'");
}

}  // namespace
}  // namespace megatron
