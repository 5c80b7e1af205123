#include "megatron/base/control_groups.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/temporary_folder.h"

namespace megatron {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(ControlGroups, TheSmallestLimitOfAGroupAndItsParentsCounts) {
  const TemporaryFolder root;
  const ControlGroups groups{.list = root / "list", .root = root / "fs"};
  write(groups.list, "0::/jobs/one\n");
  EXPECT_EQ(cgroup_memory_limit(groups), 0) << "no file";
  EXPECT_EQ(cgroup_cpu_quota(groups), 0);
  write(groups.root / "memory.max", "max\n");
  write(groups.root / "cpu.max", "max 100000\n");
  write(groups.root / "jobs/memory.max", "4096\n");
  write(groups.root / "jobs/cpu.max", "250000 100000\n");
  write(groups.root / "jobs/one/memory.max", "8192\n");
  write(groups.root / "jobs/one/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_memory_limit(groups), 4096);
  EXPECT_EQ(cgroup_cpu_quota(groups), 2.5);
}

// A container sees its own group as the root, whatever the list says.
TEST(ControlGroups, OfTheFirstVersionHaveAFolderForEachController) {
  const TemporaryFolder root;
  const ControlGroups groups{.list = root / "list", .root = root / "fs"};
  write(groups.list,
        "5:cpuset:/x\n4:memory:/docker/1\n2:cpu,cpuacct:/docker/1\n1:name=y:/\n0::/\n");
  write(groups.root / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  write(groups.root / "cpu/cpu.cfs_quota_us", "-1\n");
  write(groups.root / "cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_memory_limit(groups), 0);
  EXPECT_EQ(cgroup_cpu_quota(groups), 0);
  write(groups.root / "memory/memory.limit_in_bytes", "65536\n");
  write(groups.root / "cpu/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cgroup_memory_limit(groups), 65536);
  EXPECT_EQ(cgroup_cpu_quota(groups), 0.5);
}

}  // namespace
}  // namespace megatron
