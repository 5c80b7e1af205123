#include "megatron/base/storage/chunk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/error.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kSize = 1000;

/// A cache whose chunk NAME holds kSize times the first letter of NAME.
class ChunkCacheTest : public ::testing::Test {
 protected:
  char read(const ChunkCache& cache, const std::string& name, std::uint64_t size = kSize) {
    std::byte byte{};
    cache.read({name, size}, size - 1, {&byte, 1}, [&](std::span<std::byte> memory) {
      ++fills_;
      EXPECT_EQ(memory.size(), size);
      std::fill(memory.begin(), memory.end(), static_cast<std::byte>(name[0]));
    });
    return static_cast<char>(byte);
  }

  /// Returns the names of the files that hold chunks, temporary ones included.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_.path()))
      if (!file.path().filename().string().starts_with("lock"))
        names.insert(file.path().filename().string());
    return names;
  }
  /// Returns the size of these files at one moment: they grow only under the folder's lock.
  std::uint64_t bytes() const {
    const FileLock lock(folder_ / "lock");
    std::uint64_t total = 0;
    for (const std::string& name : files()) {
      std::error_code gone;
      const auto size = fs::file_size(folder_ / name, gone);
      if (!gone) total += size;
    }
    return total;
  }

  const TemporaryFolder folder_;
  std::atomic<int> fills_ = 0;
};

TEST_F(ChunkCacheTest, FillsAChunkOnce) {
  const ChunkCache cache(folder_.path(), 10 * kSize);
  EXPECT_EQ(read(cache, "a"), 'a');
  EXPECT_EQ(read(cache, "b"), 'b');
  EXPECT_EQ(read(cache, "a"), 'a');
  const ChunkCache later(folder_.path(), 10 * kSize);
  EXPECT_EQ(read(later, "b"), 'b');
  EXPECT_EQ(fills_, 2);
  EXPECT_THAT(files(), ElementsAre("a", "b"));
}

TEST_F(ChunkCacheTest, RemovesWhatWasNotUsedForLongest) {
  const ChunkCache cache(folder_.path(), 3 * kSize);
  for (const char* name : {"a", "b", "c", "a"}) {
    read(cache, name);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the resolution of file times
  }
  read(cache, "d");
  EXPECT_THAT(files(), UnorderedElementsAre("a", "c", "d"));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  read(cache, "e", 2 * kSize);
  EXPECT_THAT(files(), UnorderedElementsAre("d", "e"));
  EXPECT_EQ(bytes(), 3 * kSize);
}

TEST_F(ChunkCacheTest, MakesAChunkAgainThatHasAnotherSize) {
  const ChunkCache cache(folder_.path(), 10 * kSize);
  folder_.write("a", "torn");
  EXPECT_EQ(read(cache, "a"), 'a');
  EXPECT_EQ(fills_, 1);
}

TEST_F(ChunkCacheTest, LeavesNothingOfAFailure) {
  const ChunkCache cache(folder_.path(), 10 * kSize);
  std::byte byte{};
  EXPECT_THAT(message_of([&] {
                cache.read({"a", kSize}, 0, {&byte, 1}, [](std::span<std::byte>) {
                  throw UserError({"the server is gone", "", ""});
                });
              }),
              HasSubstr("the server is gone"));
  EXPECT_THAT(files(), ElementsAre());
  EXPECT_EQ(read(cache, "a"), 'a');
}

TEST_F(ChunkCacheTest, SharesOneFillAmongThreads) {
  const ChunkCache cache(folder_.path(), 10 * kSize);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      std::byte byte{};
      cache.read({"a", kSize}, 5, {&byte, 1}, [&](std::span<std::byte> memory) {
        ++fills_;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::fill(memory.begin(), memory.end(), std::byte{'a'});
      });
      right += byte == std::byte{'a'};
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fills_, 1);
  EXPECT_EQ(right, 8);
}

/// Several processes read random chunks through a cache that holds two of them.
TEST_F(ChunkCacheTest, StaysBelowItsBoundWithSeveralProcesses) {
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int child = 0; child < kProcesses; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const ChunkCache cache(folder_.path(), 2 * kSize);
      bool right = true;
      for (int i = 0; i < 60; ++i) {
        const std::string name(1, static_cast<char>('a' + (i * 7 + child * 3) % 5));
        right = right && read(cache, name) == name[0] && bytes() <= 2 * kSize;
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(bytes(), 2 * kSize);
}

TEST_F(ChunkCacheTest, RemovesWhatAKilledProcessLeft) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const ChunkCache cache(folder_.path(), 2 * kSize);
    std::byte byte{};
    cache.read({"a", 2 * kSize}, 0, {&byte, 1}, [&](std::span<std::byte> memory) {
      std::fill(memory.begin(), memory.begin() + 10, std::byte{'x'});
      [[maybe_unused]] const ssize_t written = ::write(ready[1], "r", 1);
      for (;;) ::pause();
    });
  }
  char signal = 0;
  ASSERT_EQ(::read(ready[0], &signal, 1), 1);
  EXPECT_THAT(files(), ElementsAre("a.tmp.0"));
  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  const ChunkCache cache(folder_.path(), 2 * kSize);
  EXPECT_EQ(read(cache, "a"), 'a');
  EXPECT_EQ(read(cache, "b"), 'b');
  EXPECT_THAT(files(), UnorderedElementsAre("a", "b"));
}

TEST_F(ChunkCacheTest, WaitsForRoomThatAnotherThreadFills) {
  const ChunkCache cache(folder_.path(), kSize);
  std::atomic<bool> filling = false;
  std::thread first([&] {
    std::byte byte{};
    cache.read({"a", kSize}, 0, {&byte, 1}, [&](std::span<std::byte>) {
      filling = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(bytes(), kSize) << "the other one waits";
    });
  });
  while (!filling) std::this_thread::yield();
  EXPECT_EQ(read(cache, "b"), 'b');
  first.join();
  EXPECT_THAT(files(), ElementsAre("b"));
}

TEST_F(ChunkCacheTest, NamesAFolderThatCannotBeWritten) {
  folder_.write("file", "");
  EXPECT_THAT(message_of([&] { ChunkCache(folder_ / "file" / "chunks", kSize); }),
              HasSubstr((folder_ / "file").string()));
}

}  // namespace
}  // namespace megatron
