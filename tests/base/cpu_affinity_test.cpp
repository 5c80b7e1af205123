#include "megatron/base/cpu_affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "megatron/base/control_groups.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

/// Returns two packages of two cores with two hardware threads each. As on most Linux machines, the
/// first threads of all cores have the lowest numbers.
std::vector<LogicalCpu> two_packages() {
  std::vector<LogicalCpu> cpus;
  for (int number = 0; number < 8; ++number)
    cpus.push_back({number, number / 2 % 2, number / 2 % 2, number % 2});
  return cpus;
}

TEST(CpuPartition, KeepsCoresAndNodesTogether) {
  EXPECT_EQ(cpus_of_partition({0, 2}, two_packages()), (std::vector<int>{0, 4, 1, 5}));
  EXPECT_EQ(cpus_of_partition({1, 2}, two_packages()), (std::vector<int>{2, 6, 3, 7}));
  EXPECT_EQ(cpus_of_partition({2, 4}, two_packages()), (std::vector<int>{2, 6}));
  EXPECT_EQ(cpus_of_partition({5, 8}, two_packages()), (std::vector<int>{6}));
}

TEST(CpuPartition, EveryProcessorIsInOneShare) {
  for (std::int64_t count = 1; count <= 8; ++count) {
    std::set<int> seen;
    std::size_t least = 8, most = 0;
    for (std::int64_t index = 0; index < count; ++index) {
      const std::vector<int> share = cpus_of_partition({index, count}, two_packages());
      for (const int number : share)
        EXPECT_TRUE(seen.insert(number).second) << number << " twice among " << count;
      least = std::min(least, share.size());
      most = std::max(most, share.size());
    }
    EXPECT_EQ(seen.size(), 8u);
    EXPECT_LE(most - least, 1u);
  }
}

TEST(CpuPartition, MoreRanksThanProcessorsShareThemAll) {
  EXPECT_TRUE(cpus_of_partition({0, 9}, two_packages()).empty());
  EXPECT_TRUE(cpus_of_partition({8, 9}, two_packages()).empty());
}

/// Returns the CPUs that a pinned thread, and a thread that it started, may run on.
std::pair<int, int> processors_when_pinned(const CpuPartition& share) {
  std::pair<int, int> counts;
  std::thread([&] {
    set_cpu_affinity(share);
    counts.first = num_cpus();
    std::thread([&] { counts.second = num_cpus(); }).join();
  }).join();
  return counts;
}

TEST(CpuPartition, PinsAThreadAndThoseItStarts) {
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("OMP_PROC_BIND");
  const int all = num_cpus();
  EXPECT_EQ(processors_when_pinned({0, 1}), std::pair(all, all));
  EXPECT_EQ(processors_when_pinned({0, all}), std::pair(1, 1));
  EXPECT_EQ(processors_when_pinned({all, all + 1}), std::pair(all, all)) << "more ranks than CPUs";
  EXPECT_EQ(num_cpus(), all) << "the thread that asked for the others";
}

/// Pinning reduces the CPUs of the process. They must not be divided a second time.
TEST(CpuPartition, ARankHasAsManyThreadsAsItsShareHasProcessors) {
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("OMP_PROC_BIND");
  const int all = num_cpus();
  for (int count = 1; count <= all; ++count) {
    std::thread([&] {
      const int threads = bind_to_cpus({0, count}, /*pins=*/true);
      EXPECT_EQ(threads, std::max(1, cpus_within_quota(all, cgroup_cpu_quota()) / count));
      EXPECT_EQ(num_cpus(), count == 1 ? all : all / count);
    }).join();
  }
}

TEST(CpuPartition, AQuotaIsRoundedDown) {
  EXPECT_EQ(cpus_within_quota(8, 0), 8);
  EXPECT_EQ(cpus_within_quota(8, 3.9), 3);
  EXPECT_EQ(cpus_within_quota(8, 0.5), 1);
  EXPECT_EQ(cpus_within_quota(2, 6.5), 2);
}

TEST(CpuPartition, LeavesTheChoiceToTheUser) {
  const int all = num_cpus();
  if (all == 1) GTEST_SKIP() << "one CPU is nothing to share";
  ::setenv("OMP_PROC_BIND", "false", 1);
  EXPECT_EQ(processors_when_pinned({0, all}), std::pair(all, all));
  ::unsetenv("OMP_PROC_BIND");
  ::setenv("OMP_NUM_THREADS", std::to_string(all).c_str(), 1);
  EXPECT_EQ(processors_when_pinned({0, all}), std::pair(all, all))
      << "more threads than CPUs in a share";
  EXPECT_EQ(intra_op_threads({0, all}), all);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(intra_op_threads({0, all}), 1);
}

}  // namespace
}  // namespace megatron
