// Expected text: Megatron-LM's own format strings.
#include "megatron/training/startup_report.h"

#include <gtest/gtest.h>

#include "megatron/config/fields.h"

namespace megatron {
namespace {

struct Options {
  double lr = 0.5;
  std::int64_t Eval_iters = 3;
};

TEST(ArgumentDump, IsSortedWithoutCaseWithDotsToColumn48) {
  FieldTable<Options> table;
  table.field("lr", &Options::lr, "help");
  table.field("Eval_iters", &Options::Eval_iters, "help");
  const Options options;
  EXPECT_EQ(argument_dump(table.set(), &options),
            "------------------------ arguments ------------------------\n"
            "  Eval_iters ...................................... 3\n"
            "  lr .............................................. 0.5\n"
            "-------------------- end of arguments ---------------------");
}

TEST(StartupReport, LinesAreMegatrons) {
  EXPECT_EQ(padded_vocab_line(257, 384), " > padded vocab (size: 257) with 127 dummy tokens (new size: 384)");
  EXPECT_EQ(parameter_count_line(12), " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 12");
  EXPECT_EQ(dataset_sizes_block({80, 24, 8}),
            "> building train, validation, and test datasets ...\n > datasets target sizes (minimum size):\n    train:      80\n    validation: 24\n"
            "    test:       8");
}

}  // namespace
}  // namespace megatron
