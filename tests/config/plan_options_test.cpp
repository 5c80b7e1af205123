// Tests what `plan --world-size` and `plan --memory` refuse before the engine is loaded.
#include "megatron/config/plan_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/check_options.h"
#include "megatron/config/transformer_config.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Args = std::vector<std::string>;

const Args kModel{"--num-layers", "2",  "--hidden-size",      "64", "--num-attention-heads", "2",
                  "--seq-length", "16", "--micro-batch-size", "1",  "--vocab-size",          "100"};

Args model(const Args& more) {
  Args words = kModel;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string layout_mistake(const Args& words) {
  return message_of([&] {
    PlanOptions options = read_plan(PlanMode::layouts, words);
    check_layout_plan(options);
  });
}

std::string memory_mistake(const Args& words) {
  return message_of([&] {
    PlanOptions options = read_plan(PlanMode::memory, words);
    check_memory_plan(options);
  });
}

TEST(LayoutPlan, NeedsAModelAndItsSamples) {
  EXPECT_EQ(layout_mistake(model({"--world-size", "8"})), "no error");
  EXPECT_THAT(
      layout_mistake({"--world-size", "8", "--num-layers", "2"}),
      AllOf(HasSubstr("--seq-length: is required\n     fix: add --seq-length N"),
            HasSubstr("--micro-batch-size: is required"), HasSubstr("--vocab-size: is required")));
  EXPECT_THAT(
      layout_mistake({"--world-size", "8", "--num-layers", "2", "--vocab-file", "vocab.txt"}),
      HasSubstr("--vocab-size: is required, because a plan reads no tokenizer\n     fix: add "
                "--vocab-size N; `megatron tokenizer info FILE` prints it"));
  EXPECT_THAT(layout_mistake(model({"--world-size", "0"})),
              HasSubstr("--world-size: must be at least 1, got 0"));
  EXPECT_THAT(layout_mistake(model({"--world-size", "8", "--swiglu", "--activation", "gelu"})),
              HasSubstr("--swiglu: contradicts --activation"));
  EXPECT_THAT(layout_mistake(model({"--world-size", "8", "--hybrid-context-parallel"})),
              HasSubstr("--hybrid-context-parallel: divides documents by their lengths, which a "
                        "plan does not know"));
  EXPECT_THAT(layout_mistake(model({"--world-size", "8", "--cp-comm-type", "a2a+p2p"})),
              HasSubstr("--cp-comm-type a2a+p2p: needs two --hierarchical-context-parallel-sizes"));
}

TEST(LayoutPlan, TakesTheFamiliesOfItsProgram) {
  const Args words = model({"sine", "--world-size", "8"});
  EXPECT_THAT(layout_mistake(words), HasSubstr("sine"));
  EXPECT_EQ(read_plan(PlanMode::layouts, words, {"gpt", "sine"}).model, "sine");
  EXPECT_EQ(read_plan(PlanMode::memory, words, {"gpt", "sine"}).model, "sine");
}

TEST(MemoryPlan, NeedsRanksThatFit) {
  EXPECT_EQ(memory_mistake(model({"--memory"})), "no error");
  EXPECT_THAT(memory_mistake({"--memory", "--num-layers", "2"}),
              HasSubstr("--seq-length: is required"));
  EXPECT_THAT(
      memory_mistake(model({"--memory", "--tensor-model-parallel-size", "2", "--world-size", "3"})),
      HasSubstr("--tensor-model-parallel-size 2: needs a multiple of 2 processes, there are 3"));
  EXPECT_THAT(memory_mistake(model({"--memory", "--memory-budget", "1GB"})),
              HasSubstr("--memory-budget: has no effect here: its plan depends on measured times"));
}

TEST(MemoryPlan, IsOfTheFewestRanks) {
  EXPECT_EQ(read_plan(PlanMode::memory, model({})).num_ranks(), 1);
  const Args sizes{"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"};
  EXPECT_EQ(read_plan(PlanMode::memory, model(sizes)).num_ranks(), 4);
  Args given = sizes;
  given.insert(given.end(), {"--world-size", "8"});
  EXPECT_EQ(read_plan(PlanMode::memory, model(given)).num_ranks(), 8);
  EXPECT_EQ(read_plan(PlanMode::memory,
                      model({"--num-experts", "8", "--expert-model-parallel-size", "4"}))
                .num_ranks(),
            4);
}

TEST(PlanNotes, NameFlagsWithoutEffect) {
  const Args flags = model({"--num-experts", "8", "--moe-shared-expert-overlap"});
  const std::string note =
      "accepted without effect:\n"
      "  --moe-shared-expert-overlap: there is no --moe-shared-expert-intermediate-size\n";
  PlanOptions layouts = read_plan(PlanMode::layouts, flags);
  check_layout_plan(layouts);
  EXPECT_EQ(notes_text(layouts.parsed.notes), note);
  PlanOptions memory = read_plan(PlanMode::memory, flags);
  check_memory_plan(memory);
  EXPECT_EQ(notes_text(memory.parsed.notes), note);
  Args run = flags;
  run.insert(run.end(), {"--world-size", "1", "--load", "x", "--train-iters", "1", "--lr", "1",
                         "--mock-data", "--tokenizer-type", "NullTokenizer"});
  EXPECT_EQ(notes_text(read_check(run).run.parsed.notes), note);
}

TEST(PlanNotes, ALayoutPlanChoosesTheStagesOfAPattern) {
  Args words = model({"--hybrid-layer-pattern", "*-|*-"});
  words.insert(words.begin(), "hybrid");
  PlanOptions layouts = read_plan(PlanMode::layouts, words);
  check_layout_plan(layouts);
  EXPECT_THAT(notes_text(layouts.parsed.notes),
              AllOf(HasSubstr("its | are without effect: the plan divides the layers into stages"),
                    Not(HasSubstr("--pipeline-model-parallel-size is 1"))));
  EXPECT_EQ(layouts.run.model->num_layers, 4);
}

TEST(PlanNotes, ACheckReadsNoCheckpoint) {
  Args run = model({"--world-size", "1", "--load", "x", "--train-iters", "1", "--lr", "1",
                    "--mock-data", "--tokenizer-type", "NullTokenizer", "--rope-type", "yarn",
                    "--position-embedding-type", "rope"});
  const std::string note = "--rope-type: there is no --multi-latent-attention";
  EXPECT_THAT(notes_text(read_check(run).run.parsed.notes), HasSubstr(note));
  run.emplace_back("--multi-latent-attention");
  const CheckedRun checked = read_check(run);
  EXPECT_THAT(notes_text(checked.run.parsed.notes), Not(HasSubstr(note)));
  EXPECT_EQ(checked.run.options.settings.model->rope_scaling_type, RopeScaling::yarn);
}

}  // namespace
}  // namespace megatron
