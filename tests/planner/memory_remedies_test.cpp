#include "megatron/planner/memory_remedies.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/planner/plan_layouts.h"
#include "support/gpt_traces.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::HasSubstr;

Settings run_settings() {
  Settings settings;
  settings.model = tiny_gpt();
  settings.training->micro_batch_size = 4;
  settings.training->global_batch_size = 8;
  settings.training->seq_length = settings.model->max_position_embeddings = 64;
  return settings;
}

const MemoryRemedy* find(const std::vector<MemoryRemedy>& remedies, std::string_view flags) {
  const auto found = std::ranges::find_if(
      remedies, [&](const MemoryRemedy& remedy) { return remedy.flags.starts_with(flags); });
  return found == remedies.end() ? nullptr : &*found;
}

TEST(MemoryRemedies, SaveWhatTheSettingsWithTheirFlagsNeedLess) {
  const Settings settings = run_settings();
  const ModelFamily& family = find_model_family("gpt");
  const auto remedies = memory_remedies(settings, family, 2, /*available_bytes=*/1e9);
  const MemoryRemedy* smaller = find(remedies, "--micro-batch-size 2");
  ASSERT_NE(smaller, nullptr);
  Settings changed = settings;
  changed.training->micro_batch_size = 2;
  EXPECT_EQ(smaller->saved_bytes, evaluate_layout(settings, gpt_traces(), 2).memory.total() -
                                      evaluate_layout(changed, gpt_traces(), 2).memory.total());
  EXPECT_NE(find(remedies, "--use-distributed-optimizer"), nullptr) << "of 2 data-parallel ranks";
  EXPECT_EQ(find(memory_remedies(settings, family, 1, 1e9), "--use-distributed-optimizer"),
            nullptr);
}

TEST(MemoryRemedies, DivideOffloadAndRoundTheStateOfTheOptimizer) {
  const Settings settings = run_settings();
  const ModelFamily& family = find_model_family("gpt");
  const auto remedies = memory_remedies(settings, family, 2, 1e9);
  for (const char* flags : {"--zero-stage 2", "--zero-stage 3"}) {
    ASSERT_NE(find(remedies, flags), nullptr) << flags;
    EXPECT_EQ(find(memory_remedies(settings, family, 1, 1e9), flags), nullptr)
        << "one rank has nobody to share with";
  }
  const MemoryRemedy* offload = find(remedies, "--optimizer-cpu-offload --offload-folder DIR");
  ASSERT_NE(offload, nullptr);
  EXPECT_TRUE(offload->waits_for_disk);
  EXPECT_FALSE(offload->changes_numbers);
  const MemoryRemedy* bytes = find(
      remedies, "--use-precision-aware-optimizer --exp-avg-dtype int8 --exp-avg-sq-dtype int8");
  ASSERT_NE(bytes, nullptr);
  EXPECT_TRUE(bytes->changes_numbers);
  // Two float32 moments become two bytes and a scale for each block of 256 elements.
  const double weights = evaluate_layout(settings, gpt_traces(), 2).memory.optimizer_state / 8;
  EXPECT_NEAR(bytes->saved_bytes, weights * (8 - 2 - 2 * 4.0 / 256), 0.001 * weights);
}

TEST(MemoryRemedies, NameOnlyFlagsOfThisProgram) {
  for (const MemoryRemedy& remedy :
       memory_remedies(run_settings(), find_model_family("gpt"), 2, 1e9)) {
    const std::string flag = remedy.flags.substr(2, remedy.flags.find(' ') - 2);
    std::string name = flag;
    std::ranges::replace(name, '-', '_');
    EXPECT_NE(settings_table().set().find_name(name), nullptr) << flag;
    EXPECT_GT(remedy.saved_bytes, 0) << flag;
  }
}

TEST(MemoryRemedies, ComeCheapestFirst) {
  const auto remedies = memory_remedies(run_settings(), find_model_family("gpt"), 2, 1e9);
  ASSERT_GE(remedies.size(), 3);
  EXPECT_FALSE(remedies.front().changes_numbers);
  EXPECT_EQ(remedies.front().more_time, 0);
  EXPECT_EQ(remedies.front().world_size, 2);
  const auto rank = [](const MemoryRemedy& remedy) {
    return std::tuple(remedy.world_size, remedy.changes_numbers, remedy.waits_for_disk,
                      remedy.more_time);
  };
  EXPECT_TRUE(std::ranges::is_sorted(remedies, {}, rank));
  // When none is enough, the first saves most.
  const auto needed = memory_remedies(run_settings(), find_model_family("gpt"), 2, 1);
  EXPECT_TRUE(std::ranges::is_sorted(needed, std::greater(), &MemoryRemedy::saved_bytes));
}

TEST(MemoryRemedies, DescribeEffectAndCost) {
  EXPECT_EQ(describe({.flags = "--recompute-granularity full",
                      .world_size = 2,
                      .predicted_bytes = 512.0 * (1 << 20),
                      .saved_bytes = 1.5 * (1 << 30),
                      .more_time = 0.31},
                     2),
            "--recompute-granularity full: 1.50 GiB less (512.0 MiB of tensors), about 31 % more "
            "time");
  EXPECT_EQ(describe({.flags = "--bf16", .world_size = 1, .changes_numbers = true}, 1),
            "--bf16: 0.0 MiB less (0.0 MiB of tensors), no more FLOPs, and other roundings");
  EXPECT_THAT(describe({.flags = "--tensor-model-parallel-size 2", .world_size = 4}, 2),
              HasSubstr(", on 4 ranks"));
}

}  // namespace
}  // namespace megatron
