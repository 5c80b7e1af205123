// Expected text comes from Megatron-LM's format strings.
#include <gtest/gtest.h>

#include "megatron/training/observability/log_lines.h"

namespace megatron {
namespace {

TEST(StartupReport, LinesAreMegatrons) {
  EXPECT_EQ(padded_vocab_line(257, 384),
            " > padded vocab (size: 257) with 127 dummy tokens (new size: 384)");
  EXPECT_EQ(parameter_count_line(12),
            " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 12");
  EXPECT_EQ(dataset_sizes_block({80, 24, 8}),
            "> building train, validation, and test datasets ...\n > datasets target sizes "
            "(minimum size):\n    train:      80\n    validation: 24\n"
            "    test:       8");
}

}  // namespace
}  // namespace megatron
