#include "megatron/training/loop/stop_request.h"

#include <gtest/gtest.h>

#include <csignal>

namespace megatron {
namespace {

TEST(StopSignals, RemembersTheFirstSignal) {
  StopSignals signals;
  EXPECT_EQ(signals.received(), std::nullopt);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(signals.received(), SIGTERM);
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
}

TEST(StopSignals, SecondSignalIsAnsweredAndTheThirdEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::raise(SIGTERM);
        std::raise(SIGUSR1);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "stop requested: .*stop requested again: ");
}

TEST(StopSignals, FurtherSignalIsCaughtWhenAskedFor) {
  EXPECT_EXIT(
      {
        StopSignals without;
        std::raise(SIGUSR2);
      },
      testing::KilledBySignal(SIGUSR2), "");
  StopSignals signals("SIGUSR2");
  std::raise(SIGUSR2);
  EXPECT_EQ(signals.received(), SIGUSR2);
}

TEST(StopSignals, SchedulersSignalsShareOneExitCode) {
  EXPECT_EQ(exit_code_after(SIGTERM), 143);
  EXPECT_EQ(exit_code_after(SIGUSR1), 143);
  EXPECT_EQ(exit_code_after(SIGINT), 130);
  EXPECT_EQ(exit_code_after(SIGUSR2), 140);
}

TEST(StopSignals, NewObjectForgetsAnOlderSignal) {
  {
    StopSignals signals;
    std::raise(SIGINT);
  }
  EXPECT_EQ(StopSignals().received(), std::nullopt);
}

}  // namespace
}  // namespace megatron
