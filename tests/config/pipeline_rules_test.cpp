// Tests the rules between the pipeline flags, the layers and the batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Args piped(const Args& more) {
  Args words{
      "--num-layers", "8", "--global-batch-size", "16", "--pipeline-model-parallel-size", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_all_piped(std::vector<BadRun> table) {
  for (BadRun& bad : table) bad.words = piped(bad.words);
  expect_all(table);
}

const char* const kRanks = "--pipeline-model-parallel-size";
const char* const kChunks = "--num-virtual-stages-per-pipeline-rank";
const char* const kSize = "--num-layers-per-virtual-pipeline-stage";
const char* const kLayout = "--pipeline-model-parallel-layout";
const char* const kSchedule = "--pipeline-schedule";
const char* const kFirst = "--decoder-first-pipeline-num-layers";
const char* const kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";
const char* const kLimit = "--pipeline-activation-limit";

TEST(PipelineRules, ThereMustBeAPipeline) {
  expect_all({
      {{kChunks, "2"},
       1,
       "--num-virtual-stages-per-pipeline-rank: there is no pipeline, "
       "--pipeline-model-parallel-size is 1\n  fix: add"},
      {{kSize, "1"}, 1, "--num-layers-per-virtual-pipeline-stage: there is no pipeline"},
      {{kSchedule, "zb-h1", kFirst, "1", kLayout, "EttL", "--pipeline-split", "measured", kLimit,
        "4"},
       1,
       "--pipeline-schedule, --decoder-first-pipeline-num-layers, "
       "--pipeline-model-parallel-layout, --pipeline-split measured, "
       "--pipeline-activation-limit: there is no pipeline, --pipeline-model-parallel-size is 1\n   "
       "  fix: add --pipeline-model-parallel-size N above 1, or leave --pipeline-schedule, "
       "--decoder-first-pipeline-num-layers, --pipeline-model-parallel-layout, --pipeline-split "
       "measured, --pipeline-activation-limit out"},
  });
  EXPECT_EQ(mistake({kChunks, "1", "--account-for-loss-in-pipeline-split"}), "no error");
}

TEST(PipelineRules, FlagsExcludeEachOther) {
  expect_all_piped({
      {{kChunks, "2", kSize, "2"},
       2,
       "--num-virtual-stages-per-pipeline-rank: excludes --num-layers-per-virtual-pipeline-stage"},
      {{kLayout, "Ett|ttttttL", kFirst, "2", "--account-for-loss-in-pipeline-split", kChunks, "2"},
       2,
       "--pipeline-model-parallel-layout: defines all stages, and excludes "
       "--num-virtual-stages-per-pipeline-rank, "
       "--decoder-first-pipeline-num-layers, --account-for-loss-in-pipeline-split\n  fix: leave "
       "--num-virtual-stages-per-pipeline-rank, --decoder-first-pipeline-num-layers, "
       "--account-for-loss-in-pipeline-split out"},
      {{kFirst, "2", "--account-for-embedding-in-pipeline-split"},
       2,
       "--decoder-first-pipeline-num-layers: excludes --account-for-embedding-in-pipeline-split"},
      {{kFirst, "2", kSize, "1"},
       2,
       "--decoder-first-pipeline-num-layers: excludes --num-layers-per-virtual-pipeline-stage\n  "
       "fix: use --num-virtual-stages-per-pipeline-rank N"},
      {{"--pipeline-split", "measured", kFirst, "2"},
       2,
       "--pipeline-split measured: sets the layers of all stages, and excludes --decoder-first"},
  });
}

TEST(PipelineRules, ValuesAreInRange) {
  expect_all_piped({
      {{kRanks, "0"}, 2, "--pipeline-model-parallel-size: must be at least 1, got 0"},
      {{kChunks, "0"}, 2, "--num-virtual-stages-per-pipeline-rank: must be at least 1"},
      {{kSize, "0"}, 2, "--num-layers-per-virtual-pipeline-stage: must be at least 1"},
      {{kFirst, "0"}, 2, "--decoder-first-pipeline-num-layers: must be at least 1"},
      {{"--decoder-last-pipeline-num-layers", "-1"},
       2,
       "--decoder-last-pipeline-num-layers: must be at least 1"},
      {{kGroup, "0"}, 2, "must be at least 1"},
      {{kLimit, "0"}, 2, "--pipeline-activation-limit: must be above 0"},
      {{kSchedule, "zb-h3"},
       2,
       "--pipeline-schedule: must be one of gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, "
       "dualpipe-v, combined-1f1b, auto"},
      {{"--pipeline-split", "fair"}, 2, "--pipeline-split: must be one of even, measured"},
  });
}

TEST(PipelineRules, LayersMustFit) {
  expect_all_piped({
      {{kRanks, "16"},
       16,
       "--num-layers: 8 in --pipeline-model-parallel-size 16 leaves 8 stages without a layer\n"},
      {{kChunks, "5"},
       2,
       "--num-layers: 8 in 10 stages (--pipeline-model-parallel-size 2 x 5 chunks) leaves 2 stages "
       "without a layer"},
      {{kSize, "5"},
       2,
       "--num-layers-per-virtual-pipeline-stage: 5 is more than the 4 layers of a rank (8 layers, "
       "--pipeline-model-parallel-size 2)"},
      {{kFirst, "9"}, 2, "--decoder-first-pipeline-num-layers 9: is more than --num-layers 8"},
      {{kFirst, "8"},
       2,
       "--num-layers: 8 in --pipeline-model-parallel-size 2 with "
       "--decoder-first-pipeline-num-layers 8 leaves 1 stage without"},
      {{kFirst, "3", "--decoder-last-pipeline-num-layers", "4"},
       2,
       "--decoder-first-pipeline-num-layers 3 and --decoder-last-pipeline-num-layers 4: leaves 1 "
       "of --num-layers 8 without a rank"},
      {{kLayout, "Et*3|t*4L"},
       2,
       "--pipeline-model-parallel-layout: names 7 layers (t), --num-layers is 8"},
      {{kLayout, "Et*8|t|L"},
       2,
       "--pipeline-model-parallel-layout: has 3 stages, no multiple of "
       "--pipeline-model-parallel-size 2"},
      {{kLayout, "Et*4|t*4mL"},
       2,
       "--pipeline-model-parallel-layout: names 1 layers of multi-token prediction (m), "
       "--mtp-num-layers is 0"},
      {{kSchedule, "1f1b", kChunks, "2"},
       2,
       "--pipeline-schedule 1f1b: works with one chunk per rank, and the flags make 2 chunks"},
      {{kSchedule, "interleaved"},
       2,
       "--pipeline-schedule interleaved: needs several chunks per rank"},
      {{kSchedule, "zb-v", kChunks, "4"},
       2,
       "--pipeline-schedule zb-v: works with 2 chunks per rank, and the flags make 4 chunks"},
  });
  for (const Args& fits : {Args{}, Args{kChunks, "2"}, Args{kSize, "3"}, Args{kSchedule, "zb-v"},
                           Args{kSchedule, "auto", kChunks, "2"}, Args{kLayout, "E|t*8||L"},
                           Args{"--pipeline-split", "measured", kSchedule, "dualpipe-v"}})
    EXPECT_EQ(mistake(piped(fits), 2), "no error");
}

TEST(PipelineRules, BatchesMustFit) {
  expect_all_piped({
      {{kChunks, "2", kGroup, "1"},
       2,
       "--microbatch-group-size-per-virtual-pipeline-stage: 1 is less than "
       "--pipeline-model-parallel-size 2\n"},
      {{kChunks, "2", kGroup, "9"},
       2,
       "9 is more than the 8 microbatches of the first batch\n  fix: use 2 to 8"},
      {{kChunks, "2", kGroup, "5"},
       4,
       "5 is more than the 4 microbatches of the first batch"},  // two replicas
  });
  EXPECT_EQ(mistake(piped({kChunks, "2", kGroup, "8"}), 2), "no error");
}

// 1F1B keeps p microbatches, GPipe m, and interleaved p + (p − 1)/v (Narayanan et al. 2021, §2.2).
TEST(PipelineRules, ActivationsMustFit) {
  expect_all_piped({
      {{kLimit, "1.5"},
       2,
       "--pipeline-activation-limit: 1.5 is less than the 2 microbatches that rank 0 of the "
       "pipeline keeps with --pipeline-schedule 1f1b\n  fix: use "
       "2"},
      {{kLimit, "7", kSchedule, "gpipe"}, 2, "7 is less than the 8 microbatches"},
      {{kLimit, "2", kFirst, "6"},
       2,
       "2 is less than the 3 microbatches that rank 0"},  // three quarters of the layers, twice
      {{kLimit, "2", kChunks, "2"},
       2,
       "2 is less than the 2.5 microbatches that rank 0 of the pipeline keeps with "
       "--pipeline-schedule interleaved"},
  });
  for (const Args& fits :
       {Args{kLimit, "2"}, Args{kLimit, "8", kSchedule, "gpipe"}, Args{kLimit, "2.5", kChunks, "2"},
        Args{kLimit, "0.5", kSchedule, "auto"}})
    EXPECT_EQ(mistake(piped(fits), 2), "no error");
}

TEST(PipelineRules, FixesFitTheValues) {
  expect_all_piped({
      {{kLayout, "Et*4|t*4mL"},
       2,
       "--mtp-num-layers is 0\n  fix: write one m for each, between the layers and L"},
      {{kLayout, "Et*3|(tt|*2L"},
       2,
       "--pipeline-model-parallel-layout: a group without ')' at position 6\n    Et*3|(tt|*2L\n    "
       "     ^\n  fix: write E for the embedding"},
      {{kRanks, "3", kChunks, "3", "--global-batch-size", "12"},
       3,
       "--num-layers: 8 in 9 stages (--pipeline-model-parallel-size 3 x 3 chunks) leaves 1 stage "
       "without a layer\n  fix: use fewer stages, or assign the layers with "
       "--pipeline-model-parallel-layout"},
      {{kSchedule, "1f1b", kChunks, "2"},
       2,
       "--pipeline-schedule 1f1b: works with one chunk per rank, and the flags make 2 chunks\n  "
       "fix: use --pipeline-schedule interleaved, or leave the virtual stages out"},
      {{kLimit, "4", kSchedule, "gpipe"},
       2,
       "--pipeline-activation-limit: 4 is less than the 8 microbatches that rank 0 of the pipeline "
       "keeps with --pipeline-schedule gpipe\n  fix: use 8 or more, or --pipeline-schedule auto"},
      {{kFirst, "2", "--account-for-loss-in-pipeline-split"},
       2,
       "--decoder-first-pipeline-num-layers: excludes --account-for-loss-in-pipeline-split"},
      {{"--use-megatron-fsdp", kSchedule, "combined-1f1b"},
       4,
       "--pipeline-schedule combined-1f1b: excludes --use-megatron-fsdp, because the layers of two "
       "microbatches alternate and would be gathered again for every op\n  fix: use --zero-stage "
       "2, or another schedule"},
  });
}

TEST(PipelineRules, AMistakeIsNamedOnce) {
  EXPECT_THAT(mistake(piped({kChunks, "5", kSize, "5", kGroup, "1"}), 2),
              Not(HasSubstr("problems")));
  EXPECT_THAT(mistake(piped({kChunks, "two"}), 2),
              AllOf(HasSubstr("must be an integer, got 'two'"), Not(HasSubstr("problems"))));
  EXPECT_THAT(mistake(piped({kLayout, "oops", kLimit, "1"}), 2), Not(HasSubstr("problems")));
  EXPECT_THAT(mistake({"--num-layers", "0", kRanks, "2"}, 2), Not(HasSubstr("stage")));
}

TEST(PipelineRules, AllAreShownTogether) {
  const std::string text =
      mistake(piped({kRanks, "4", kChunks, "3", "--global-batch-size", "5"}), 6);
  for (const char* part : {"needs a multiple of 4 processes, there are 6", "5 is no multiple of",
                           "--num-layers: 8 in 12 stages (--pipeline-model-parallel-size 4 x 3 "
                           "chunks) leaves 4 stages without a layer"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(PipelineNotes, AFlagWithoutEffectSaysSo) {
  const auto notes = [](const Args& words, std::int64_t world_size) {
    return read_run(small(words), world_size).parsed.notes;
  };
  const auto alone =
      notes({"--no-overlap-p2p-communication", "--account-for-loss-in-pipeline-split"}, 1);
  EXPECT_EQ(alone.at("without effect with --pipeline-model-parallel-size 1").size(), 2u);
  EXPECT_TRUE(
      notes({kRanks, "2", "--no-overlap-p2p-communication", "--account-for-loss-in-pipeline-split"},
            2)
          .empty());
  const char* group = "without effect: the schedule has one chunk per rank, or an order of its own";
  EXPECT_TRUE(notes(piped({kGroup, "2"}), 2).contains(group));
  EXPECT_TRUE(notes(piped({kGroup, "2", kSchedule, "zb-v"}), 2).contains(group));
  EXPECT_FALSE(notes(piped({kGroup, "2", kChunks, "2"}), 2).contains(group));
}

TEST(PipelineFlags, MegatronsOverlapOfExpertsIsASchedule) {
  const char* overlap = "--overlap-moe-expert-parallel-comm";
  EXPECT_TRUE(read_run(small({overlap}))
                  .parsed.notes.contains("without effect: --pipeline-model-parallel-size is 1"));
  const auto run = read_run(small(piped({overlap})), 2);
  EXPECT_EQ(run.options.settings.parallel->pipeline_schedule, "combined-1f1b");
  EXPECT_EQ(run.parsed.origin("pipeline_schedule").where, overlap);
}

TEST(PipelineFlags, MegatronsOthersSayWhatTheyAreHere) {
  EXPECT_EQ(
      mistake({"--mtp-standalone", "--defer-embedding-wgrad-compute", "--wgrad-deferral-limit", "3",
               "--overlap-p2p-communication-warmup-flush", "--delay-wgrad-compute"}),
      "no error");
}

}  // namespace
}  // namespace megatron
