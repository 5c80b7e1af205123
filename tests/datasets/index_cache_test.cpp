// The index cache under clock skew, torn files, crashes and concurrent builders.
#include "megatron/datasets/index_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "datasets/corpus.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class IndexCacheTest : public ::testing::Test {
 protected:
  IndexCacheTest() { write_source(1); }

  void write_source(std::uint64_t contents) {
    contents_ = contents;
    test::write_text_file(folder_ / "a.idx", std::to_string(contents));
  }

  std::vector<std::int64_t> load(const std::function<void()>& while_building = [] {}) {
    const IndexArrays arrays = load_or_build(
        entry(),
        [&] {
          ++builds_;
          while_building();
          return IndexArrays{
              NpyArray(std::vector<std::int32_t>(5000, static_cast<std::int32_t>(contents_)))};
        },
        [](const IndexArrays& loaded) { return loaded[0].size() == 5000; }, warnings_);
    return {arrays[0].at(0), arrays[0].at(4999)};
  }

  IndexCacheEntry entry() {
    return {.folder = folder_ / "cache",
            .class_name = "GPTDataset",
            .split = "train",
            .description = "{}",
            .array_names = {"order"},
            .sources = {.files = {folder_ / "a.idx"}, .checksum = [this] {
                          ++checksums_;
                          return contents_;
                        }}};
  }

  fs::path file(const std::string& end) {
    for (const auto& found : fs::directory_iterator(folder_ / "cache"))
      if (found.path().string().ends_with(end)) return found.path();
    return {};
  }

  void set_age(const fs::path& path, hours age) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }

  TemporaryFolder folder_;
  std::uint64_t contents_ = 0;
  int builds_ = 0, checksums_ = 0;
  std::vector<std::string> warnings_;
};

TEST_F(IndexCacheTest, ReadsNoContentsOfUnchangedFiles) {
  set_age(folder_ / "a.idx", hours(1));
  load();
  checksums_ = 0;
  EXPECT_THAT(load(), ElementsAre(1, 1));
  EXPECT_EQ(checksums_, 0);
  EXPECT_EQ(builds_, 1);
  EXPECT_THAT(warnings_, IsEmpty());
}

// The stamp would say that the index belongs to the new data, whose contents nobody has read.
TEST_F(IndexCacheTest, DoesNotKeepAnIndexOfDataThatWereReplacedMeanwhile) {
  set_age(folder_ / "a.idx", hours(2));
  load([this] {
    test::write_text_file(folder_ / "a.idx", "other data");
    set_age(folder_ / "a.idx", hours(1));
  });
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the data were replaced while it was built")));
  load();
  EXPECT_EQ(builds_, 2);
}

// The clock of the host that wrote the data is ahead, or the data were copied after the build.
TEST_F(IndexCacheTest, KeepsTheIndexOfANewerSourceWithTheSameContents) {
  set_age(folder_ / "a.idx", hours(-1));
  load();
  EXPECT_THAT(warnings_, IsEmpty());
  for (const hours age : {hours(-1), hours(-2)}) {
    set_age(folder_ / "a.idx", age);
    warnings_.clear();
    EXPECT_THAT(load(), ElementsAre(1, 1));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr("a.idx is newer than its cached sample order, which is "
                                        "kept because the contents are the same"));
  }
  EXPECT_EQ(builds_, 1);
  set_age(folder_ / "a.idx", hours(1));
  warnings_.clear();
  load();
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(IndexCacheTest, RebuildsForOtherContentsOfAnyTime) {
  for (const hours age : {hours(-1), hours(1000), hours(0)}) {
    load();
    warnings_.clear();
    write_source(contents_ + 1);
    set_age(folder_ / "a.idx", age);
    const auto value = static_cast<std::int64_t>(contents_);
    EXPECT_THAT(load(), ElementsAre(value, value));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr("a.idx has changed since"));
  }
}

// A file written twice within the resolution of its time has the same size and time.
TEST_F(IndexCacheTest, ComparesTheContentsOfAYoungFile) {
  load();
  const auto time = fs::last_write_time(folder_ / "a.idx");
  write_source(2);
  fs::last_write_time(folder_ / "a.idx", time);
  EXPECT_THAT(load(), ElementsAre(2, 2));
}

TEST_F(IndexCacheTest, RebuildsATornArray) {
  load();
  const std::string whole = test::read_text_file(file("order.npy"));
  for (const std::string& torn :
       {whole.substr(0, 50), whole.substr(0, whole.size() - 1), whole + "x", std::string(),
        whole.substr(0, whole.size() - 64) + std::string(64, '\0')}) {
    test::write_text_file(file("order.npy"), torn);
    warnings_.clear();
    EXPECT_THAT(load(), ElementsAre(1, 1));
    ASSERT_EQ(warnings_.size(), 1u) << torn.size();
    EXPECT_THAT(warnings_[0], HasSubstr("order.npy was cut short or overwritten"));
  }
  fs::remove(file("order.npy"));
  EXPECT_THAT(load(), ElementsAre(1, 1));
}

TEST_F(IndexCacheTest, BuildsWhatAKilledBuilderBeganAndRemovesItsFiles) {
  load();
  const fs::path array = file("order.npy");
  test::write_text_file(array.string() + ".tmp.77.0", "half");
  fs::remove(file("description.txt"));
  EXPECT_THAT(load(), ElementsAre(1, 1));
  EXPECT_EQ(builds_, 2);
  EXPECT_FALSE(fs::exists(array.string() + ".tmp.77.0"));
}

// megatron-core writes no stamp. Then file times decide, once.
TEST_F(IndexCacheTest, TakesAnIndexWithoutStampIfItIsNewer) {
  load();
  fs::remove(file("stamp.json"));
  set_age(folder_ / "a.idx", hours(1));
  load();
  EXPECT_EQ(builds_, 1);
  set_age(folder_ / "a.idx", hours(-1));
  load();
  EXPECT_EQ(builds_, 2);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("its contents have no stamp"));
  load();
  EXPECT_EQ(builds_, 2) << "the newer source makes nobody build again";
}

TEST_F(IndexCacheTest, RebuildsForAnyDamagedStamp) {
  load();
  const std::string whole = test::read_text_file(file("stamp.json"));
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    std::string stamp = whole;
    for (int change = 0; change < 3; ++change)
      stamp[random() % stamp.size()] = static_cast<char>(random() % 256);
    if (i % 3 == 0) stamp.resize(random() % stamp.size());
    test::write_text_file(file("stamp.json"), stamp);
    EXPECT_THAT(load(), ElementsAre(1, 1));
  }
  for (const char* stamp : {"", "null", "[]", "{}", "{\"version\":1}",
                            "{\"version\":1,\"sources\":[1],\"arrays\":[null]}"}) {
    test::write_text_file(file("stamp.json"), stamp);
    builds_ = 0;
    EXPECT_THAT(load(), ElementsAre(1, 1));
    EXPECT_EQ(builds_, 1) << stamp;
  }
}

// Every process appends a byte when it builds.
TEST_F(IndexCacheTest, SaysThatItWaits) {
  load();
  write_source(2);
  std::optional<FileLock> lock(file("-lock"));
  testing::internal::CaptureStderr();
  std::thread waiting([this] { load(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  lock.reset();
  waiting.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("note: waiting for another process that builds "));
  EXPECT_EQ(builds_, 2);
}

TEST_F(IndexCacheTest, IsBuiltByOneOfManyProcesses) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const IndexArrays arrays = load_or_build(
          entry(),
          [&] {
            std::ofstream(folder_ / "builds", std::ios::app) << 'x' << std::flush;
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            return IndexArrays{NpyArray(std::vector<std::int32_t>(100, 7))};
          },
          [](const IndexArrays&) { return true; }, warnings_);
      ::_exit(arrays[0].at(99) == 7 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(test::read_text_file(folder_ / "builds"), "x");
}

}  // namespace
}  // namespace megatron
