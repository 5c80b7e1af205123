#include "megatron/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "megatron/base/error.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Files, MapsWhatWasWritten) {
  const std::string text("one\0two", 7);
  write_file_atomically(folder_ / "a", text);
  const MappedFile map(folder_ / "a");
  ASSERT_EQ(map.size(), text.size());
  EXPECT_EQ(std::memcmp(map.data(), text.data(), text.size()), 0);
  EXPECT_EQ(read_file(folder_ / "a"), text);
}

TEST_F(Files, AnEmptyFileIsAnEmptyMap) {
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").size(), 0u);
  EXPECT_EQ(read_file(folder_ / "empty"), "");
}

TEST_F(Files, MovesTheMap) {
  write_file_atomically(folder_ / "a", "abc");
  MappedFile first(folder_ / "a");
  MappedFile second(std::move(first));
  EXPECT_EQ(second.size(), 3u);
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(static_cast<char>(third.data()[2]), 'c');
}

TEST_F(Files, NamesThePathOfWhatIsMissing) {
  const auto path = folder_ / "missing";
  EXPECT_THAT(message_of([&] { read_file(path); }), HasSubstr(path.string()));
  EXPECT_THAT(message_of([&] { MappedFile map(path); }), HasSubstr(path.string()));
  EXPECT_THAT(message_of([&] { FileWriter writer(path / "below"); }), HasSubstr(path.string()));
  EXPECT_THAT(message_of([&] { write_file_atomically(path / "below", "x"); }),
              HasSubstr(path.string()));
  EXPECT_THAT(message_of([&] { read_file(folder_); }), HasSubstr(folder_.string()));
  EXPECT_THAT(message_of([&] { MappedFile map(folder_); }), HasSubstr(folder_.string()));
}

TEST_F(Files, ReadsAPipeToItsEndButNoDevice) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "one\ntwo\n"; });
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  writer.join();
  EXPECT_THAT(message_of([] { read_file("/dev/zero"); }),
              HasSubstr("cannot read /dev/zero: it is a device"));
  std::thread endless([&] { std::ofstream(path) << std::string(9, 'x'); });
  EXPECT_THAT(message_of([&] { read_file(path, 8); }), HasSubstr("it has more than 8 bytes"));
  endless.join();
}

TEST_F(Files, DoesNotWaitForTheWriterOfAPipe) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { MappedFile map(path); }),
              HasSubstr("cannot read " + path.string() + ": it is not a regular file"));
}

TEST_F(Files, ReplacesAtomicallyAndLeavesNoNeighbour) {
  write_file_atomically(folder_ / "a", "old");
  write_file_atomically(folder_ / "a", "new");
  EXPECT_EQ(read_file(folder_ / "a"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Files, WriterKeepsOrderAcrossItsBuffer) {
  const std::string large(3 << 20, 'x');
  FileWriter writer(folder_ / "big");
  writer.write("head");
  writer.write(large);
  writer.write("tail");
  EXPECT_EQ(writer.position(), large.size() + 8);
  writer.close(true);
  const std::string text = read_file(folder_ / "big");
  EXPECT_TRUE(text == "head" + large + "tail");
}

TEST_F(Files, WriterReportsAFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  EXPECT_THAT(message_of([] {
                FileWriter writer("/dev/full");
                writer.write("x");
                writer.close();
              }),
              HasSubstr("/dev/full"));
}

TEST_F(Files, LockAdmitsOneAtATime) {
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const FileLock lock(folder_ / "lock");
        most = std::max(most.load(), ++inside);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        --inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

TEST_F(Files, WhoAsksForALockIsNotItsHolder) {
  const auto path = folder_ / "lock";
  { const FileLock lock(path); }
  const int other = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_SH | LOCK_NB), 0);  // as is_held() in another process
  EXPECT_FALSE(FileLock::is_held(path));
  ::close(other);
}

TEST_F(Files, TriesALockWithoutWaiting) {
  const auto path = folder_ / "lock";
  EXPECT_FALSE(FileLock::is_held(path));
  EXPECT_FALSE(fs::exists(path));
  {
    const std::optional<FileLock> lock = FileLock::try_lock(path, LockFile::remove);
    ASSERT_TRUE(lock);
    EXPECT_TRUE(FileLock::is_held(path));
    EXPECT_FALSE(FileLock::try_lock(path));
  }
  EXPECT_FALSE(fs::exists(path));
  { const FileLock lock(path); }
  EXPECT_TRUE(fs::exists(path));
  EXPECT_THAT(message_of([&] { FileLock::try_lock(folder_ / "none" / "lock"); }),
              HasSubstr("cannot create lock"));
}

/// A thread that waits for a file which its holder then removes must not end up with a lock on a
/// nameless file, which excludes nobody.
TEST_F(Files, LocksAFileThatItsHolderRemoves) {
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const FileLock lock(folder_ / "lock", LockFile::remove);
        most = std::max(most.load(), ++inside);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        --inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace megatron
