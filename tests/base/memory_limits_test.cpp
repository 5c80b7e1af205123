#include "megatron/base/memory_limits.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(UsableMemory, IsWhatUlimitsLeaveAfterReservedAddresses) {
  constexpr double kGibibyte = 1 << 30;
  EXPECT_FALSE(usable_under_ulimits({.reserved_addresses = kGibibyte, .machine = kGibibyte}));
  MemoryLimits limits{
      .data = 10 * kGibibyte, .reserved_data = 3 * kGibibyte, .resident = kGibibyte};
  EXPECT_EQ(usable_under_ulimits(limits), 8 * kGibibyte) << "two of ten are reserved and not used";
  limits.thread_stack = kGibibyte / 8;
  EXPECT_EQ(usable_under_ulimits(limits), 7 * kGibibyte) << "eight threads start later";
  limits.resident = 4 * kGibibyte;
  EXPECT_EQ(usable_under_ulimits(limits), 10 * kGibibyte) << "ulimit -d counts no libraries";
  limits.resident = kGibibyte;
  limits.address_space = 6 * kGibibyte;
  limits.reserved_addresses = 2 * kGibibyte;
  EXPECT_EQ(usable_under_ulimits(limits), 4 * kGibibyte) << "the smaller rest counts";
}

TEST(AttainableMemory, IsDividedAmongProcesses) {
  MemoryLimits limits{.resident = 100, .available = 800};
  EXPECT_EQ(attainable_memory(limits, 1), 900);
  EXPECT_EQ(attainable_memory(limits, 4), 300);
  limits.cgroup = 1000;
  EXPECT_EQ(attainable_memory(limits, 1), 900);
  EXPECT_EQ(attainable_memory(limits, 4), 250) << "a container counts what they hold, too";
}

TEST(MemoryLimits, AreThoseOfTheSystem) {
  const MemoryLimits limits = host_memory_limits();
  EXPECT_GT(limits.resident, 0);
  EXPECT_GT(limits.available, 0);
  EXPECT_LE(limits.available, limits.machine);
}

}  // namespace
}  // namespace megatron
