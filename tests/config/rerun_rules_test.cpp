// Tests what excludes the comparison of microbatches between data-parallel replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Args checked(const Args& more) {
  Args flags{"--check-microbatch-across-dp-replicas-interval", "400"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST(RerunRules, ReplicasThatPackSequencesDoNotExchangeMicrobatches) {
  const std::string packing =
      ", with which replicas pack sequences of different numbers and "
      "lengths";
  expect_all({
      {checked({"--dataloader-inter-document-masking"}), 2,
       "--check-microbatch-across-dp-replicas-interval: excludes "
       "--dataloader-inter-document-masking" +
           packing},
      {checked({"--sft", "--tokenizer-type", "SFTTokenizer"}), 2, "excludes --sft" + packing},
  });
  EXPECT_EQ(mistake({"--dataloader-inter-document-masking"}, 2), "no error");
  EXPECT_EQ(mistake(checked({}), 2), "no error");
}

TEST(RerunRules, ReplicasThatComputeTogetherDoNotExchangeMicrobatches) {
  const std::string shared = ", with which replicas compute a microbatch together";
  expect_all({
      {checked({"--zero-stage", "2"}), 2, "excludes --zero-stage 2" + shared},
      {checked({"--expert-model-parallel-size", "2", "--num-experts", "2"}), 2,
       "excludes --expert-model-parallel-size" + shared},
  });
  const std::string once =
      mistake(checked({"--hybrid-context-parallel", "--dataloader-inter-document-masking",
                       "--max-seqlen-per-dp-cp-rank", "16", "--calculate-per-token-loss",
                       "--micro-batch-size", "1"}),
              2);
  EXPECT_THAT(once, HasSubstr("excludes --hybrid-context-parallel" + shared));
  EXPECT_THAT(once, Not(HasSubstr("pack sequences"))) << "the mistake is named once";
}

}  // namespace
}  // namespace megatron
