#include "megatron/training/stop_request.h"

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

TEST(StopSignals, SecondSignalOfAKindEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
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
