#include "megatron/datasets/webdataset/tar_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "datasets/tar_writer.h"
#include "megatron/base/error.h"
#include "megatron/base/storage/local_range_reader.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using test::tar_end;
using test::tar_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TarReaderTest : public ::testing::Test {
 protected:
  /// Returns "name:data" of every file.
  std::vector<std::string> list(const std::string& archive) const {
    const LocalRangeReader file(folder_.write("a.tar", archive));
    TarReader reader(file);
    std::vector<std::string> found;
    while (const std::optional<TarMember> member = reader.next()) {
      std::string data(member->size, '?');
      file.read(member->data_offset, std::as_writable_bytes(std::span(data)));
      found.push_back(member->name + ":" + data);
    }
    return found;
  }
  std::string message(const std::string& archive) const {
    return message_of([&] { list(archive); });
  }

  const TemporaryFolder folder_;
};

TEST_F(TarReaderTest, ListsRegularFiles) {
  EXPECT_THAT(
      list(tar_file("a.txt", "one") + tar_file("folder/", "", '5') + tar_file("link", "", '2') +
           tar_file("b", std::string(512, 'x')) + tar_file("old", "x", '\0') + tar_end()),
      ElementsAre("a.txt:one", "b:" + std::string(512, 'x'), "old:x"));
  EXPECT_THAT(list(tar_end()), ElementsAre());
}

TEST_F(TarReaderTest, ReadsLongNames) {
  const std::string name(300, 'n');
  EXPECT_THAT(list(tar_file("././@LongLink", name + '\0', 'L') + tar_file("short", "data") +
                   tar_file("next", "") + tar_end()),
              ElementsAre(name + ":data", "next:"));
  EXPECT_THAT(list(tar_file("x", "28 path=a name of pax.txt 1\n9 size=4\n", 'x') +
                   tar_file("short", "data") + tar_end()),
              ElementsAre("a name of pax.txt 1:data"));
  EXPECT_THAT(list(tar_file("g", "20 comment=whatever\n", 'g') + tar_file("b", "data") + tar_end()),
              ElementsAre("b:data"));
}

TEST_F(TarReaderTest, ReadsSizesInBase256) {
  std::string file = tar_file("big", "12345");
  std::memcpy(file.data() + 124, "\x80\0\0\0\0\0\0\0\0\0\0\5", 12);
  test::set_tar_sum(file);
  EXPECT_THAT(list(file + tar_end()), ElementsAre("big:12345"));
  file[124] = '\xff';
  test::set_tar_sum(file);
  EXPECT_THAT(message(file + tar_end()), HasSubstr("'size' of a header is negative or too large"));
}

TEST_F(TarReaderTest, NamesFileAndOffsetOfDamage) {
  std::string archive = tar_file("a", "one") + tar_file("b", "two");
  EXPECT_THAT(
      message(archive),
      AllOf(HasSubstr((folder_ / "a.tar").string()),
            HasSubstr("ends without its last block, so it may be cut short at offset 2048")));
  EXPECT_THAT(message(archive.substr(0, 1300)),
              HasSubstr("cut short within a header at offset 1024"));
  EXPECT_THAT(message(archive.substr(0, 1538)),
              HasSubstr("cut short within a file at offset 1024: 2 of 3 bytes are there"));
  archive[1024] = 'X';
  EXPECT_THAT(message(archive), HasSubstr("the checksum of a header is wrong at offset 1024"));
  EXPECT_THAT(message(""), HasSubstr("at offset 0"));
  EXPECT_THAT(message(std::string(511, '\0')), HasSubstr("cut short within a header at offset 0"));
}

TEST_F(TarReaderTest, RefusesWhatItDoesNotUnderstand) {
  const std::string rest = tar_file("a", "one") + tar_end();
  EXPECT_THAT(message(tar_file("a", "", 'S') + rest), HasSubstr("sparse files are not supported"));
  EXPECT_THAT(message(tar_file("x", "25 GNU.sparse.major=1.00\n", 'x') + rest),
              HasSubstr("sparse files are not supported"));
  for (const char* record :
       {"path=a\n", "9 path=ab", "999 path=a\n", "0 path=a\n", "9 patha\n\n", "3 \n"})
    EXPECT_THAT(message(tar_file("x", record, 'x') + rest), HasSubstr("a pax record is damaged"))
        << record;
  EXPECT_THAT(message(tar_file("x", "12 size=ten\n", 'x') + rest),
              HasSubstr("a pax record 'size' is not a number"));
  EXPECT_THAT(message(tar_file("x", "28 size=9999999999999999999\n", 'x') + rest),
              HasSubstr("cut short within a file"));
  EXPECT_THAT(message(tar_file("././@LongLink", "name", 'L') + tar_end()),
              HasSubstr("no file follows its long name"));
}

/// Random damage: every archive is read, or a UserError names it. (ASan watches the memory.)
TEST_F(TarReaderTest, SurvivesRandomDamage) {
  const std::string whole = tar_file("x", "28 path=a name of pax.txt 1\n", 'x') +
                            tar_file("a", "one") + tar_file("l", std::string(200, 'n'), 'L') +
                            tar_file("b", std::string(700, 'x')) + tar_file("c", "") + tar_end();
  std::mt19937 draw(7);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (std::uint32_t changes = 1 + draw() % 4; changes > 0; --changes)
      damaged[draw() % damaged.size()] = static_cast<char>(draw());
    if (draw() % 2 == 0) {  // headers with right sums come farther
      const std::size_t header = draw() % (damaged.size() / 512) * 512;
      test::set_tar_sum(damaged, header);
    }
    if (draw() % 4 == 0) damaged.resize(draw() % damaged.size());
    try {
      list(damaged);
    } catch (const UserError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("a.tar"));
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 2000);
}

}  // namespace
}  // namespace megatron
