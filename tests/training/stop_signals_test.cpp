#include "megatron/training/run/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace megatron {
namespace {

TEST(StopSignalHandler, RemembersTheFirstSignal) {
  StopSignalHandler signals;
  EXPECT_EQ(signals.received(), std::nullopt);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(signals.received(), SIGTERM);
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
}

TEST(StopSignalHandler, SecondSignalIsAnsweredAndTheThirdEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignalHandler signals;
        std::raise(SIGTERM);
        std::raise(SIGUSR1);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "stop requested: .*stop requested again: ");
}

TEST(StopSignalHandler, FurtherSignalIsCaughtWhenAskedFor) {
  EXPECT_EXIT(
      {
        StopSignalHandler without;
        std::raise(SIGUSR2);
      },
      testing::KilledBySignal(SIGUSR2), "");
  StopSignalHandler signals("SIGUSR2");
  std::raise(SIGUSR2);
  EXPECT_EQ(signals.received(), SIGUSR2);
}

TEST(StopSignalHandler, NewObjectForgetsAnOlderSignal) {
  {
    StopSignalHandler signals;
    std::raise(SIGINT);
  }
  EXPECT_EQ(StopSignalHandler().received(), std::nullopt);
}

}  // namespace
}  // namespace megatron
