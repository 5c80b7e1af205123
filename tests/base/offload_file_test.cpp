#include "megatron/base/offload_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "megatron/base/error.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

class OffloadFileTest : public ::testing::TestWithParam<bool> {
 protected:
  OffloadFile::Options options() const {
    return {.folder = folder_, .num_threads = 3, .allow_direct = GetParam()};
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

Bytes random_bytes(std::size_t size, std::mt19937& random) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// The message of the UserError that waiting throws; empty if it throws none.
std::string failure(const OffloadTransfer& transfer) {
  try {
    transfer.wait();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

TEST_P(OffloadFileTest, HoldsWhatAModelInMemoryHolds) {
  OffloadFile file(options());
  EXPECT_TRUE(fs::is_empty(folder_)) << "the file has a name";
  std::mt19937 random(1);
  std::vector<std::pair<Extent, Bytes>> model;
  for (int step = 0; step < 400; ++step) {
    if (model.size() < 12 && random() % 2 == 0) {
      Bytes bytes = random_bytes(1 + random() % (step % 10 == 0 ? 3'000'000 : 20'000), random);
      const Extent extent = file.allocate(bytes.size());
      EXPECT_EQ(extent.offset % OffloadFile::kAlignment, 0u);
      file.write(bytes, extent).wait();
      model.emplace_back(extent, std::move(bytes));
    } else if (!model.empty()) {
      const std::size_t index = random() % model.size();
      auto& [extent, expected] = model[index];
      Bytes found(expected.size());
      file.read(extent, found).wait();
      ASSERT_EQ(found, expected) << "step " << step;
      file.free(extent);
      model.erase(model.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  std::uint64_t in_use = 0;
  for (const auto& [extent, bytes] : model) in_use += extent.bytes;
  EXPECT_EQ(file.bytes_in_use(), in_use);
}

TEST_P(OffloadFileTest, ManyThreadsShareIt) {
  OffloadFile file(options());
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 8; ++thread)
    threads.emplace_back([&file, thread] {
      std::mt19937 random(thread);
      for (int round = 0; round < 20; ++round) {
        const Bytes bytes = random_bytes(1 + random() % 100'000, random);
        const Extent extent = file.allocate(bytes.size());
        file.write(bytes, extent).wait();
        Bytes found(bytes.size());
        file.read(extent, found).wait();
        EXPECT_EQ(found, bytes);
        file.free(extent);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(file.bytes_in_use(), 0u);
}

TEST_P(OffloadFileTest, DropsTheOwnerWhenTheCopyIsDone) {
  OffloadFile file(options());
  auto owner = std::make_shared<Bytes>(100'000);
  const std::weak_ptr<Bytes> memory = owner;
  const Extent extent = file.allocate(owner->size());
  const std::span<const std::byte> bytes(*owner);
  const OffloadTransfer transfer = file.write(bytes, extent, std::move(owner));
  transfer.wait();
  EXPECT_TRUE(memory.expired());
}

TEST_P(OffloadFileTest, BoundsTheBytesInFlight) {
  /// Counts how many writes run or wait at once, in the only way a caller sees it: by owners.
  auto bounded = options();
  bounded.max_bytes_in_flight = 3 * OffloadFile::kAlignment;
  std::atomic<int> alive{0}, most{0};
  OffloadFile file(bounded);
  const Bytes bytes(OffloadFile::kAlignment);
  for (int i = 0; i < 100; ++i) {
    const Extent extent = file.allocate(bytes.size());
    file.write(bytes, extent, std::shared_ptr<void>(nullptr, [&](void*) { --alive; }));
    most = std::max<int>(most, ++alive);
  }
  // The one that returned last may be alive beside those in flight.
  EXPECT_LE(most, 4);
  Bytes large(10 * OffloadFile::kAlignment);  // larger than the bound: alone
  const Extent extent = file.allocate(large.size());
  file.write(large, extent).wait();
}

class FaultyCalls : public OffloadFileCalls {
 public:
  std::atomic<std::int64_t> disk_bytes{1 << 30};
  std::atomic<int> read_errno{0}, open_errno{0};

  int open(const fs::path& path, int flags) override {
    if (open_errno == 0) return OffloadFileCalls::open(path, flags);
    errno = open_errno;
    return -1;
  }
  ssize_t read(int descriptor, void* data, std::size_t size, std::uint64_t offset) override {
    if (read_errno == 0) return OffloadFileCalls::read(descriptor, data, size, offset);
    errno = read_errno;
    return -1;
  }
  /// Writes what fits on the disk, as the system does, then fails.
  ssize_t write(int descriptor, const void* data, std::size_t size, std::uint64_t offset) override {
    const std::int64_t room = disk_bytes - static_cast<std::int64_t>(offset);
    if (room <= 0) {
      errno = ENOSPC;
      return -1;
    }
    return OffloadFileCalls::write(
        descriptor, data, std::min<std::size_t>(size, static_cast<std::size_t>(room)), offset);
  }
};

TEST_P(OffloadFileTest, AFullDiskReachesWhoWaits) {
  FaultyCalls calls;
  calls.disk_bytes = 1172 * 512;  // disks are cut at sectors
  auto faulty = options();
  faulty.calls = &calls;
  OffloadFile file(faulty);
  const Bytes bytes(500'000);
  const Extent first = file.allocate(bytes.size()), second = file.allocate(bytes.size());
  const OffloadTransfer fits = file.write(bytes, first), fails = file.write(bytes, second);
  EXPECT_EQ(failure(fits), "");
  const std::string message = failure(fails);
  EXPECT_NE(message.find(folder_.string()), std::string::npos) << message;
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_NE(message.find("ENOSPC"), std::string::npos) << message;
  EXPECT_EQ(failure(fails), message) << "each wait throws";
  Bytes found(bytes.size());
  EXPECT_EQ(failure(file.read(first, found)), "") << "the others continue";
  EXPECT_EQ(found, bytes);
}

TEST_P(OffloadFileTest, AReadErrorReachesWhoWaits) {
  FaultyCalls calls;
  auto faulty = options();
  faulty.calls = &calls;
  OffloadFile file(faulty);
  Bytes bytes(10'000);
  const Extent extent = file.allocate(bytes.size());
  file.write(bytes, extent).wait();
  calls.read_errno = EIO;
  const std::string message = failure(file.read(extent, bytes));
  EXPECT_NE(message.find("cannot read from the offload folder " + folder_.string()),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("EIO"), std::string::npos) << message;
}

TEST_P(OffloadFileTest, AFileSizeLimitIsAnErrorNotASignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  OffloadFile file(options());
  rlimit limit = before;
  limit.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Bytes bytes(3 << 20);
  const std::string message = failure(file.write(bytes, file.allocate(bytes.size())));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(message.find("ulimit -f"), std::string::npos) << message;
}

TEST_P(OffloadFileTest, RefusesAFolderThatCannotBeUsed) {
  auto missing = options();
  missing.folder = folder_ / "missing";
  EXPECT_THROW(OffloadFile{missing}, UserError);
  FaultyCalls calls;
  calls.open_errno = EACCES;
  auto refused = options();
  refused.calls = &calls;
  try {
    OffloadFile file(refused);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos);
    EXPECT_EQ(error.parts().fix, "check the permissions, or choose another folder");
  }
}

TEST_P(OffloadFileTest, CancelsWhatHasNotBegun) {
  /// Holds the only thread in a write until it is let go.
  struct SlowCalls : OffloadFileCalls {
    std::atomic<bool> held{false};
    ssize_t write(int descriptor, const void* data, std::size_t size,
                  std::uint64_t offset) override {
      while (held) std::this_thread::yield();
      return OffloadFileCalls::write(descriptor, data, size, offset);
    }
  } calls;
  auto slow = options();
  slow.calls = &calls;
  slow.num_threads = 1;
  const Bytes bytes(OffloadFile::kAlignment);
  OffloadFile file(slow);
  calls.held = true;
  const OffloadTransfer first = file.write(bytes, file.allocate(bytes.size()));
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> memory = owner;
  const OffloadTransfer second = file.write(bytes, file.allocate(bytes.size()), std::move(owner));
  EXPECT_TRUE(second.cancel());
  EXPECT_TRUE(memory.expired());
  second.wait();
  calls.held = false;
  first.wait();
  EXPECT_FALSE(first.cancel());
}

INSTANTIATE_TEST_SUITE_P(Ways, OffloadFileTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Direct" : "Buffered"; });

TEST(ExtentAllocatorTest, ReusesAndMerges) {
  ExtentAllocator extents(4096);
  const Extent a = extents.allocate(1), b = extents.allocate(8192), c = extents.allocate(4096);
  EXPECT_EQ(a, (Extent{0, 4096}));
  EXPECT_EQ(b, (Extent{4096, 8192}));
  EXPECT_EQ(c, (Extent{12288, 4096}));
  extents.free(a);
  extents.free(b);  // joins a
  EXPECT_EQ(extents.allocate(12288), (Extent{0, 12288}));
  EXPECT_THROW(extents.free({16384, 4096}), InternalError);
  extents.free(c);
  EXPECT_THROW(extents.free(c), InternalError);
  EXPECT_EQ(extents.allocate(4000), c);
  EXPECT_EQ(extents.end(), 16384u);
}

TEST(ExtentAllocatorTest, ExtentsNeverOverlap) {
  ExtentAllocator extents(512);
  std::mt19937 random(7);
  std::map<std::uint64_t, std::uint64_t> used;
  std::uint64_t total = 0, most = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (used.empty() || random() % 2 == 0) {
      const Extent extent = extents.allocate(1 + random() % 10'000);
      const auto after = used.lower_bound(extent.offset);
      if (after != used.end()) {
        ASSERT_LE(extent.offset + extent.bytes, after->first);
      }
      if (after != used.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second, extent.offset);
      }
      used.emplace(extent.offset, extent.bytes);
      total += extent.bytes;
      most = std::max(most, total);
    } else {
      auto victim = used.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random() % used.size()));
      extents.free({victim->first, victim->second});
      total -= victim->second;
      used.erase(victim);
    }
    ASSERT_EQ(extents.bytes_in_use(), total);
  }
  while (!used.empty()) {
    extents.free({used.begin()->first, used.begin()->second});
    used.erase(used.begin());
  }
  EXPECT_EQ(extents.allocate(extents.end()), (Extent{0, extents.end()})) << "all free space merged";
}

}  // namespace
}  // namespace megatron
