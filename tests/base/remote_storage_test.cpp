#include "megatron/base/storage/remote_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/message_of.h"
#include "support/object_server.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RemoteStorageTest : public ::testing::Test {
 protected:
  static std::string read(const RangeReader& reader, std::uint64_t offset, std::size_t size) {
    std::string bytes(size, '?');
    reader.read(offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  const TemporaryFolder folder_;
  ObjectServer server_;
  StorageOptions options_{.cache_path = folder_.path(),
                          .cache_bytes = 32,
                          .chunk_bytes = 8,
                          .retries = {.attempts = 2, .first_delay_s = 0.001, .timeout_s = 5}};
};

TEST_F(RemoteStorageTest, CopiesAlignedChunks) {
  server_.put("f", "0123456789abcdefghij");
  const auto reader = open_range_reader(server_.url("f"), options_);
  EXPECT_EQ(reader->size(), 20u);
  server_.take_ranges();
  EXPECT_EQ(read(*reader, 6, 4), "6789");
  EXPECT_THAT(server_.take_ranges(), ElementsAre("0-7", "8-15"));
  EXPECT_EQ(read(*reader, 18, 2), "ij");
  EXPECT_THAT(server_.take_ranges(), ElementsAre("16-19"));
  EXPECT_EQ(read(*reader, 0, 20), "0123456789abcdefghij");
  EXPECT_THAT(server_.take_ranges(), ElementsAre());
}

TEST_F(RemoteStorageTest, TakesNoChunksOfAnotherVersion) {
  server_.put("f", "old contents", "\"1\"");
  EXPECT_EQ(read(*open_range_reader(server_.url("f"), options_), 0, 12), "old contents");
  server_.put("f", "new contents", "\"2\"");
  EXPECT_EQ(read(*open_range_reader(server_.url("f"), options_), 0, 12), "new contents");
}

TEST_F(RemoteStorageTest, ReadsLocalFiles) {
  const std::string path = folder_.write("local", "0123456789");
  const auto reader = open_range_reader(path, {});
  EXPECT_EQ(reader->size(), 10u);
  EXPECT_EQ(read(*reader, 3, 4), "3456");
  EXPECT_EQ(local_copy(path, {}), path);
  folder_.write("local", "01");
  EXPECT_THAT(message_of([&] { read(*reader, 3, 4); }), HasSubstr("the file became shorter"));
}

TEST_F(RemoteStorageTest, CopiesAWholeFileOnce) {
  server_.put("a/f.idx", "index", "\"1\"");
  const fs::path copy = local_copy(server_.url("a/f.idx"), options_);
  EXPECT_EQ(copy, folder_.path() / server_.origin().substr(7) / "a/f.idx");
  EXPECT_EQ(read_file(copy), "index");
  server_.take_ranges();
  local_copy(server_.url("a/f.idx"), options_);
  EXPECT_THAT(server_.take_ranges(), ElementsAre("0-0"));
  server_.put("a/f.idx", "other", "\"2\"");
  EXPECT_EQ(read_file(local_copy(server_.url("a/f.idx"), options_)), "other");
}

TEST_F(RemoteStorageTest, CopiesAgainWithoutAVersion) {
  server_.put("f.idx", "index", "");
  local_copy(server_.url("f.idx"), options_);
  server_.put("f.idx", "other", "");
  EXPECT_EQ(read_file(local_copy(server_.url("f.idx"), options_)), "other");
}

TEST_F(RemoteStorageTest, LeavesNoHalfCopy) {
  server_.put("f.idx", std::string(1000, 'x'));
  server_.set_fault([](int number, const ServerRequest&, ServerAnswer& answer) {
    if (number > 0) answer.drop_after = 10;
  });
  EXPECT_THAT(message_of([&] { local_copy(server_.url("f.idx"), options_); }),
              HasSubstr("the answer ended after 10 of"));
  EXPECT_FALSE(fs::exists(options_.cache_path / locate_object(server_.url("f.idx")).cache_name()));
}

TEST_F(RemoteStorageTest, NeedsAFolderAndRoomForAChunk) {
  const auto message = [&](const StorageOptions& options) {
    return message_of([&] { open_range_reader(server_.url("f"), options); });
  };
  EXPECT_THAT(message({}), HasSubstr("give one with --object-storage-cache-path"));
  EXPECT_THAT(message({.cache_path = folder_.path(), .cache_bytes = 1 << 20}),
              HasSubstr("--object-storage-chunk-mib is larger than --object-storage-cache-mib: "
                        "256 and 1"));
}

}  // namespace
}  // namespace megatron
