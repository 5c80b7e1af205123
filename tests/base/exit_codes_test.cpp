#include "megatron/base/exit_codes.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(ExitCodes, SchedulersSignalsShareOne) {
  EXPECT_EQ(exit_code_after(SIGTERM), 143);
  EXPECT_EQ(exit_code_after(SIGUSR1), 143);
  EXPECT_EQ(exit_code_after(SIGINT), 130);
  EXPECT_EQ(exit_code_after(SIGUSR2), 140);
}

}  // namespace
}  // namespace megatron
