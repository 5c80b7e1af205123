// Tests the rules between the parallel flags, the architecture and the world size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/resolve.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/world_rules.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParallelRules, FlagsAskForEachOther) {
  expect_all({
      {{"--tp-comm-overlap", "--tensor-model-parallel-size", "2"},
       2,
       "--tp-comm-overlap: needs --sequence-parallel"},
      {{"--overlap-param-gather"},
       2,
       "2 problems\n  1. --overlap-param-gather: needs --use-distributed-optimizer\n     fix: add "
       "--use-distributed-optimizer, or leave --overlap-param-gather out\n  2. "
       "--overlap-param-gather: needs --overlap-grad-reduce\n"},
      {{"--overlap-param-gather", "--overlap-grad-reduce"},
       2,
       "--overlap-param-gather: needs --use-distributed-optimizer\n"},
      {{"--overlap-param-gather", "--use-distributed-optimizer"},
       2,
       "--overlap-param-gather: needs --overlap-grad-reduce\n"},
      {{"--num-distributed-optimizer-instances", "2"},
       2,
       "--num-distributed-optimizer-instances: needs --use-distributed-optimizer"},
      {{"--ddp-bucket-size", "5", "--ddp-num-buckets", "5"},
       2,
       "--ddp-bucket-size: excludes --ddp-num-buckets"},
      {{"--ddp-average-in-collective", "--calculate-per-token-loss"},
       2,
       "--ddp-average-in-collective: excludes --calculate-per-token-loss"},
      {{"--ddp-grad-compression", "low-rank", "--use-distributed-optimizer"},
       2,
       "--ddp-grad-compression low-rank: excludes --use-distributed-optimizer"},
  });
}

TEST(ParallelRules, ValuesAreInRange) {
  expect_all({
      {{"--tensor-model-parallel-size", "0"},
       1,
       "--tensor-model-parallel-size: must be at least 1, got 0"},
      {{"--ddp-bucket-size", "0"}, 1, "--ddp-bucket-size: must be at least 1"},
      {{"--ddp-num-buckets", "0"}, 1, "--ddp-num-buckets: must be at least 1"},
      {{"--ddp-grad-compression", "zip"},
       1,
       "--ddp-grad-compression: must be one of none, bf16, low-rank, got 'zip'"},
      {{"--ddp-grad-compression-rank", "0"}, 1, "--ddp-grad-compression-rank: must be at least 1"},
      {{"--cpu-transport", "mpi"}, 1, "--cpu-transport: must be one of auto, shared-memory, gloo"},
      {{"--distributed-timeout-minutes", "0"}, 1, "--distributed-timeout-minutes: must be above 0"},
      {{"--distributed-backend", "mpi"}, 1, "--distributed-backend: must be one of nccl, gloo"},
      {{"--check-weight-hash-across-dp-replicas-interval", "-1"},
       1,
       "--check-weight-hash-across-dp-replicas-interval: must be at least 0"},
      {{"--num-distributed-optimizer-instances", "0"},
       1,
       "--num-distributed-optimizer-instances: must be at least 1"},
  });
}

TEST(ParallelRules, TheArchitectureMustBeDivisible) {
  const char* tp = "--tensor-model-parallel-size";
  expect_all({
      {{tp, "4"},
       4,
       "--num-attention-heads: 6 is no multiple of --tensor-model-parallel-size 4\n  fix: use "
       "--tensor-model-parallel-size 3, or"},
      {{tp, "2", "--ffn-hidden-size", "99"},
       2,
       "--ffn-hidden-size: 99 is no multiple of --tensor-model-parallel-size 2"},
      {{tp, "2", "--group-query-attention", "--num-query-groups", "3"},
       2,
       "--num-query-groups: 3 and --tensor-model-parallel-size 2: neither divides the other\n  "
       "fix: use --tensor-model-parallel-size 1"},
      {{tp, "3", "--sequence-parallel"},
       3,
       "--seq-length: 32 is no multiple of --tensor-model-parallel-size 3, as --sequence-parallel "
       "needs"},
      {{tp, "3", "--sequence-parallel"},
       3,
       "fix: use --tensor-model-parallel-size 2, or --seq-length 30 or 33"},
      {{tp, "1000000000"},
       1,
       "--num-attention-heads: 6 is no multiple of --tensor-model-parallel-size 1000000000\n     "
       "fix: use --tensor-model-parallel-size 6"},
  });
  EXPECT_EQ(mistake({tp, "6", "--group-query-attention", "--num-query-groups", "3"}, 6),
            "no error");
  EXPECT_EQ(mistake({tp, "3", "--group-query-attention", "--num-query-groups", "6", "--vocab-size",
                     "100"},
                    6),
            "no error");
}

TEST(ContextRules, SequencesAndHeadsAreDividedEvenly) {
  expect_all({
      {{"--context-parallel-size", "3"},
       3,
       "--seq-length: 32 is no multiple of 6: each rank of --context-parallel-size 3 holds two "
       "equal chunks\n  fix: use --seq-length 30 or 36"},
      {{"--context-parallel-size", "2", "--tensor-model-parallel-size", "3", "--sequence-parallel",
        "--seq-length", "30"},
       6,
       "--seq-length: 30 is no multiple of 12: each rank of --context-parallel-size 2 holds two "
       "equal chunks, of which --sequence-parallel gives each rank of "
       "--tensor-model-parallel-size a slice\n  fix: use --seq-length 24 or 36"},
      {{"--context-parallel-size", "4", "--cp-comm-type", "a2a"},
       4,
       "--cp-comm-type a2a: divides attention heads, but the 6 heads of a rank are no multiple of "
       "--context-parallel-size 4\n  fix: use --cp-comm-type p2p, or --context-parallel-size 3"},
      {{"--context-parallel-size", "3", "--seq-length", "36", "--group-query-attention",
        "--num-query-groups", "2", "--cp-comm-type", "a2a"},
       3,
       "of the 2 groups of a rank and --context-parallel-size 3 neither divides the other\n  fix: "
       "use --cp-comm-type p2p"},
      {{"--context-parallel-size", "2", "--cp-comm-type", "p2p", "a2a", "p2p"},
       2,
       "--cp-comm-type: names 3 types, --num-layers is 2\n  fix: give one for all layers, or one "
       "for each"},
      {{"--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p"},
       4,
       "--cp-comm-type a2a+p2p: needs two --hierarchical-context-parallel-sizes whose product is "
       "--context-parallel-size 4, given none\n  fix: use --hierarchical-context-parallel-sizes 2 "
       "2"},
      {{"--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p",
        "--hierarchical-context-parallel-sizes", "2", "3"},
       4,
       "given 2 3"},
      {{"--context-parallel-size", "3", "--cp-comm-type", "a2a+p2p"},
       3,
       "fix: use --cp-comm-type p2p, or a --context-parallel-size that is a product"},
      {{"--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p", "--load", "missing"},
       4,
       "whose product is --context-parallel-size 4, given none"},
      {{"--context-parallel-size", "4", "--hierarchical-context-parallel-sizes", "2", "3"},
       4,
       "--hierarchical-context-parallel-sizes: needs --cp-comm-type a2a+p2p and several ranks of "
       "--context-parallel-size"},
      {{"--context-parallel-size", "6", "--seq-length", "48", "--cp-comm-type", "a2a", "a2a+p2p",
        "--hierarchical-context-parallel-sizes", "2", "3", "--group-query-attention",
        "--num-query-groups", "3"},
       6,
       "--cp-comm-type a2a+p2p: divides query groups, but of the 3 groups of a rank and "
       "--hierarchical-context-parallel-sizes 2 neither divides the other"},
      {{"--context-parallel-size", "8", "--cp-comm-type", "a2a+p2p",
        "--hierarchical-context-parallel-sizes", "4", "2"},
       8,
       "--cp-comm-type a2a+p2p: divides attention heads, but the 6 heads of a rank are no multiple "
       "of --hierarchical-context-parallel-sizes 4\n  fix: use --cp-comm-type p2p, or divide heads "
       "among 2"},
  });
  EXPECT_EQ(mistake({"--cp-comm-type", "a2a", "p2p", "p2p"}), "no error") << "without cp";
  EXPECT_EQ(mistake({"--context-parallel-size", "2", "--num-experts", "8",
                     "--expert-model-parallel-size", "8"},
                    8),
            "no error")
      << "experts of several sequences";
}

TEST(ParallelRules, HybridContextParallelismNeedsPackedDocuments) {
  const std::vector<std::string> works{"--hybrid-context-parallel",
                                       "--max-seqlen-per-dp-cp-rank",
                                       "16",
                                       "--dataloader-inter-document-masking",
                                       "--calculate-per-token-loss",
                                       "--micro-batch-size",
                                       "1",
                                       "--seq-length",
                                       "32"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = works;
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  EXPECT_EQ(mistake(works, 2), "no error");
  expect_all({
      {{"--hybrid-context-parallel"},
       2,
       "--hybrid-context-parallel: needs --max-seqlen-per-dp-cp-rank, the number of tokens that a "
       "rank can hold\n     fix: add --max-seqlen-per-dp-cp-rank N, or leave"},
      {{"--hybrid-context-parallel"}, 2, "fix: add --dataloader-inter-document-masking"},
      {{"--hybrid-context-parallel"}, 2, "fix: add --calculate-per-token-loss"},
      {with({"--micro-batch-size", "2"}), 2, "fix: use --micro-batch-size 1"},
      {with({"--cp-comm-type", "a2a"}), 2, "fix: use p2p or all_gather"},
      {with({"--dataloader-type", "cyclic"}), 2, "fix: use --dataloader-type single"},
      {with({"--num-experts", "4"}), 2, "excludes --num-experts: routers count over"},
      {with({"--max-seqlen-per-dp-cp-rank", "15"}), 2,
       "--max-seqlen-per-dp-cp-rank: 15 tokens on each of 2 ranks hold no document of --seq-length "
       "32\n  fix: use at least 16"},
      {with({"--seq-length", "64"}), 6,
       "16 tokens on each of 2 (of 6) ranks hold no document of --seq-length 64\n  fix: use at "
       "least 32, or a power of two of ranks with the same weights"},
  });
  EXPECT_EQ(mistake({"--max-seqlen-per-dp-cp-rank", "0"}, 2), "no error");
}

TEST(ZeroRules, NamesOfOneStageAgree) {
  expect_all({
      {{"--zero-stage", "2", "--data-parallel-sharding-strategy", "optim"},
       2,
       "--zero-stage 2: contradicts --data-parallel-sharding-strategy optim, which is stage 1\n  "
       "fix: give one of the two"},
      {{"--use-distributed-optimizer", "--zero-stage", "0"},
       2,
       "--use-distributed-optimizer: contradicts --zero-stage 0, which shards nothing"},
      {{"--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward", "--zero-stage", "3"},
       2,
       "--use-torch-fsdp2: is stage 2 of ZeRO here and contradicts --zero-stage 3"},
      {{"--use-torch-fsdp2", "--use-megatron-fsdp"}, 2, "excludes --use-megatron-fsdp"},
      {{"--use-megatron-fsdp", "--zero-stage", "0"},
       2,
       "--use-megatron-fsdp: shards the weights and contradicts --zero-stage 0\n  fix: leave one "
       "of "
       "the two out"},
  });
}

TEST(ZeroRules, SayWhatNeedsShards) {
  expect_all({
      {{"--zero-stage", "2", "--ddp-grad-compression", "bf16"},
       2,
       "--ddp-grad-compression bf16: excludes --zero-stage 2"},
      {{"--use-megatron-fsdp", "--overlap-param-gather"}, 2, "needs --overlap-grad-reduce"},
  });
}

TEST(ZeroRules, EveryNameGivesItsStage) {
  const auto stage = [](const std::vector<std::string>& flags) {
    return zero_stage(*read_run(small(flags), 1).options.settings.parallel);
  };
  EXPECT_EQ(stage({}), 0);
  EXPECT_EQ(stage({"--use-distributed-optimizer"}), 1);
  EXPECT_EQ(stage({"--data-parallel-sharding-strategy", "optim_grads"}), 2);
  EXPECT_EQ(stage({"--use-megatron-fsdp"}), 3);
  EXPECT_EQ(stage({"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim"}), 1);
  EXPECT_EQ(stage({"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "no_shard"}), 0);
  EXPECT_EQ(stage({"--use-torch-fsdp2"}), 3);
  EXPECT_EQ(stage({"--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward"}), 2);
  EXPECT_EQ(stage({"--zero-stage", "3", "--use-distributed-optimizer"}), 3);
}

TEST(ParallelRules, WhatIsNotThereYetSaysWhy) {
  expect_all({
      {{"--tensor-parallel-num-weight-shards", "2"}, 2, "weights have no GTP shards"},
      {{"--fake-process-group"}, 2, "megatron launch --nproc-per-node N"},
      {{"--megatron-fsdp-main-params-dtype", "bf16"},
       2,
       "--megatron-fsdp-main-params-dtype: chooses a type of its own for sharded runs, which is "
       "not "
       "in this version"},
  });
}

TEST(WorldRules, DegreesDivideTheWorld) {
  const char* tp = "--tensor-model-parallel-size";
  expect_all({
      {{tp, "2"},
       1,
       "--tensor-model-parallel-size 2: needs a multiple of 2 processes, this is one\n  fix: start "
       "2 (`megatron launch --nproc-per-node 2 -- "
       "...`), or change the flags"},
      {{tp, "3"},
       4,
       "--tensor-model-parallel-size 3: needs a multiple of 3 processes, there are 4\n  fix: start "
       "3 or 6"},
      {{tp, "6"}, 4, "start 6 (`megatron launch --nproc-per-node 6"},
      {{tp, "2"},
       3,
       "--tensor-model-parallel-size 2: needs a multiple of 2 processes, there are 3\n  fix: start "
       "2 or 4"},
      {{tp, "2", "--pipeline-model-parallel-size", "2", "--sequence-parallel"},
       1,
       "--tensor-model-parallel-size 2 x --pipeline-model-parallel-size 2: needs a multiple of 4 "
       "processes, this is one"},
      {{"--num-experts", "8", "--expert-model-parallel-size", "2", tp, "2"},
       2,
       "--tensor-model-parallel-size 2 x --expert-model-parallel-size 2: needs a multiple of 4 "
       "processes, there are 2\n  fix: start 4 (`megatron launch --nproc-per-node 4 -- ...`), add "
       "--expert-tensor-parallel-size 1 to divide only the other layers by "
       "--tensor-model-parallel-size, or change the flags"},
      {{"--num-experts", "8", "--expert-model-parallel-size", "2"},
       1,
       "--expert-model-parallel-size 2: needs a multiple of 2 processes, this is one"},
  });
  const std::vector<std::string> stages{"--pipeline-model-parallel-size",
                                        "2",
                                        "--use-tp-pp-dp-mapping",
                                        "--context-parallel-size",
                                        "2",
                                        "--num-experts",
                                        "8",
                                        "--global-batch-size",
                                        "16"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), stages.begin(), stages.end());
    return more;
  };
  EXPECT_THAT(mistake(with({"--expert-model-parallel-size", "4"}), 8),
              HasSubstr("--use-tp-pp-dp-mapping: puts pipeline neighbours tp x cp = 2 ranks apart "
                        "in dense layers and etp x ep = 4 in experts\n  fix: leave it out, or"));
  EXPECT_EQ(mistake(with({"--expert-model-parallel-size", "2"}), 8), "no error");
  EXPECT_EQ(mistake({tp, "2"}, 2), "no error");
  EXPECT_EQ(mistake({}, 7), "no error");
}

TEST(WorldRules, BatchesDivideOverTheReplicas) {
  expect_all({
      {{"--global-batch-size", "6"},
       2,
       "--global-batch-size: 6 is no multiple of --micro-batch-size 2 x 2 data-parallel ranks = "
       "4\n  fix: use --global-batch-size 4 or 8, or add "
       "--decrease-batch-size-if-needed"},
      {{"--global-batch-size", "2"}, 3, "fix: use --global-batch-size 6, or add"},
      {{"--global-batch-size", "4", "--decrease-batch-size-if-needed"},
       3,
       "--micro-batch-size: --micro-batch-size 2 x 3 data-parallel ranks = 6 is more than the "
       "first batch of 4"},
      {{"--global-batch-size", "16", "--rampup-batch-size", "4", "2", "100"},
       2,
       "--rampup-batch-size: a batch of 6 is no multiple of --micro-batch-size 2 x 2 data-parallel "
       "ranks = 4"},
      {{"--step-batch-size-schedule", "0:4 1K:6"},
       2,
       "--step-batch-size-schedule: a batch of 6 is no multiple of --micro-batch-size 2 x 2"},
      {{"--eval-global-batch-size", "6"},
       2,
       "--eval-global-batch-size: 6 is no multiple of the micro batch size of evaluation, 2, x 2 "
       "data-parallel ranks\n  fix: use "
       "--eval-global-batch-size 4 or 8"},
      {{"--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2"},
       3,
       "--num-distributed-optimizer-instances: 2 does not divide the 3 ranks that hold the same "
       "weights"},
  });
  EXPECT_EQ(mistake({"--global-batch-size", "6", "--tensor-model-parallel-size", "2"}, 6),
            "no error");
  EXPECT_EQ(mistake({"--rampup-batch-size", "8", "8", "100"}, 4),
            "no error");  // the default allows up to 2 x 4
}

TEST(WorldRules, AMistakeIsNamedOnce) {
  EXPECT_THAT(
      mistake({"--global-batch-size", "5"}, 2),
      AllOf(HasSubstr("5 is no multiple of --micro-batch-size 2\n"), Not(HasSubstr("problems"))));
  EXPECT_THAT(mistake({"--global-batch-size", "6", "--rampup-batch-size", "4", "2", "10"}, 4),
              Not(HasSubstr("a batch of 6")));
}

TEST(WorldRules, AllAreShownTogether) {
  const std::string text =
      mistake({"--tensor-model-parallel-size", "2", "--tp-comm-overlap", "--overlap-param-gather",
               "--context-parallel-size", "3", "--global-batch-size", "5"},
              4);
  for (const char* part :
       {"--tp-comm-overlap: needs --sequence-parallel", "--overlap-param-gather: needs",
        "--seq-length: 32 is no multiple of 6",
        "--context-parallel-size 3: needs a multiple of 6 processes, there are 4",
        "5 is no multiple"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(WorldRules, UnreadableFieldsAreNamedOnce) {
  EXPECT_THAT(mistake({"--tensor-model-parallel-size", "two"}, 3),
              AllOf(HasSubstr("--tensor-model-parallel-size: must be an integer, got 'two'"),
                    Not(HasSubstr("problems"))));
}

TEST(WorldRules, TheDefaultBatchIsOneMicrobatchOfEachReplica) {
  Settings settings = read_run(small({"--tensor-model-parallel-size", "2"}), 8).options.settings;
  EXPECT_EQ(data_parallel_size(settings, 8), 4);
  resolve(settings, data_parallel_size(settings, 8));
  EXPECT_EQ(settings.training->global_batch_size, 8);
}

TEST(ParallelNotes, AFlagWithoutEffectSaysSo) {
  const auto run = read_run(small({"--ddp-grad-compression-rank", "8"}));
  EXPECT_TRUE(
      run.parsed.notes.contains("without effect: there is no --ddp-grad-compression low-rank"));
}

}  // namespace
}  // namespace megatron
