// Tests the rules on samples: --fim-data, --document-packing-strategy and --sft.
#include <gtest/gtest.h>

#include "config/small_run.h"

namespace megatron {
namespace {

TEST(FimRules, FlagsAskForEachOther) {
  expect_all({
      {{"--fim-data", "--fim-split-sample", "<file>"},
       1,
       "--fim-split-sample: needs --fim-fragment-rate, the share of fragments to reorder\n  fix: "
       "add --fim-fragment-rate X, or leave --fim-split-sample out"},
      {{"--fim-data", "--sft"}, 1, "--fim-data: excludes --sft, whose samples are conversations"},
      {{"--fim-data", "--dataloader-inter-document-masking"},
       1,
       "--dataloader-inter-document-masking: excludes --fim-data, which changes the lengths of "
       "documents\n  fix: use --reset-attention-mask and --reset-position-ids"},
  });
  EXPECT_EQ(mistake({"--fim-data", "--reset-attention-mask", "--fim-split-sample", "<file>",
                     "--fim-fragment-rate", "0.5"}),
            "no error");
}

TEST(DocumentPackingRules, DocumentsKeepApart) {
  const char* strategy = "--document-packing-strategy";
  expect_all({
      {{strategy, "bfd"},
       1,
       "--document-packing-strategy bfd: would let documents that were put together attend to each "
       "other\n  fix: add --dataloader-inter-document-masking"},
      {{strategy, "bfd", "--fim-data"},
       1,
       "--document-packing-strategy bfd: excludes --fim-data, which changes the lengths of "
       "documents\n  fix: give one of the two"},
  });
  EXPECT_EQ(mistake({strategy, "bfd_split", "--dataloader-inter-document-masking"}), "no error");
}

TEST(SftRules, NeedATokenizerOfConversations) {
  expect_all({{{"--sft", "--tokenizer-type", "NullTokenizer", "--reset-position-ids"},
               1,
               "--tokenizer-type NullTokenizer: cannot format the conversations of --sft"}});
}

}  // namespace
}  // namespace megatron
