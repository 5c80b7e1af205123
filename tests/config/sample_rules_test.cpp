// Tests the rules on samples: --fim-data, --document-packing-strategy and --sft.
#include <gtest/gtest.h>

#include "config/small_run.h"

namespace megatron {
namespace {

TEST(FimRules, FlagsAskForEachOther) {
  const std::string only = ": has no effect without --fim-data\n  fix: add --fim-data, or leave ";
  expect_all({
      {{"--fim-rate", "0.9"}, 1, "--fim-rate" + only},
      {{"--fim-spm-rate", "0.9"}, 1, "--fim-spm-rate" + only},
      {{"--fim-no-prefix", "x"}, 1, "--fim-no-prefix" + only},
      {{"--fim-prefix-token", "x"}, 1, "--fim-prefix-token" + only},
      {{"--fim-middle-token", "x"}, 1, "--fim-middle-token" + only},
      {{"--fim-suffix-token", "x"}, 1, "--fim-suffix-token" + only},
      {{"--fim-pad-token", "x"}, 1, "--fim-pad-token" + only},
      {{"--fim-eod-token", "x"}, 1, "--fim-eod-token" + only},
      {{"--fim-split-sample", "x", "--fim-fragment-rate", "0.5"},
       1,
       "2 problems\n  1. --fim-split-sample: has no effect without --fim-data\n     fix: add "
       "--fim-data, or leave --fim-split-sample out\n  2. --fim-fragment-rate: has no effect "},
      {{"--fim-data", "--fim-split-sample", "<file>"},
       1,
       "--fim-split-sample: needs --fim-fragment-rate, the share of fragments to reorder\n  fix: "
       "add --fim-fragment-rate X, or leave --fim-split-sample out"},
      {{"--fim-data", "--fim-fragment-rate", "0.5"},
       1,
       "--fim-fragment-rate: has no effect without --fim-split-sample"},
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
      {{strategy, "bfd", "--sft"},
       1,
       "--document-packing-strategy: has no effect with --sft\n     fix: use "
       "--sft-packing-strategy"},
      {{strategy, "bfd", "--fim-data"},
       1,
       "--document-packing-strategy bfd: excludes --fim-data, which changes the lengths of "
       "documents\n  fix: give one of the two"},
  });
  EXPECT_EQ(mistake({strategy, "bfd_split", "--dataloader-inter-document-masking"}), "no error");
}

TEST(SftRules, FlagsOfConversations) {
  const std::string only = ": has no effect without --sft\n  fix: add --sft, or leave ";
  const std::string resets =
      ": has no effect with --sft, where attention and positions restart "
      "with each conversation";
  expect_all({
      {{"--sft-packing-strategy", "bfd"}, 1, "--sft-packing-strategy" + only},
      {{"--sft-tokenizer-prompt-format", "identity"}, 1, "--sft-tokenizer-prompt-format" + only},
      {{"--chat-template", "x"}, 1, "--chat-template" + only},
      {{"--sft", "--tokenizer-type", "NullTokenizer", "--reset-position-ids"},
       1,
       "--tokenizer-type NullTokenizer: cannot format the conversations of --sft"},
      {{"--sft", "--reset-position-ids"}, 1, "--reset-position-ids" + resets},
      {{"--sft", "--reset-attention-mask"}, 1, "--reset-attention-mask" + resets},
      {{"--sft", "--dataloader-inter-document-masking"},
       1,
       "--dataloader-inter-document-masking" + resets},
      {{"--sft", "--eod-mask-loss"},
       1,
       "--eod-mask-loss: has no effect with --sft, whose loss is that of answers"},
  });
}

}  // namespace
}  // namespace megatron
