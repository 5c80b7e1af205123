#include "megatron/datasets/npy.h"

#include <gtest/gtest.h>

#include "datasets/corpus.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

TEST(Npy, WritesTheBytesOfNumpySave) {
  TemporaryFolder folder;
  NpyArray(std::vector<std::int32_t>(2 * 109, 7), 2).save(folder / "a.npy");
  const std::string bytes = test::read_text_file(folder / "a.npy");
  std::string header("\x93NUMPY\x01\x00v\x00", 10);
  header += "{'descr': '<i4', 'fortran_order': False, 'shape': (109, 2), }";
  header += std::string(56, ' ') + "\n";
  EXPECT_EQ(bytes.substr(0, 128), header);
  EXPECT_EQ(bytes.size(), 128 + 4 * 2 * 109u);
}

TEST(Npy, ReadsBackEveryType) {
  TemporaryFolder folder;
  NpyArray(std::vector<std::int16_t>{-1, 2}).save(folder / "i2.npy");
  NpyArray(std::vector<std::int64_t>{-1, std::int64_t{1} << 40}).save(folder / "i8.npy");
  NpyArray(std::vector<std::uint32_t>{0, 4294967295u}).save(folder / "u4.npy");
  NpyArray(std::vector<std::uint32_t>{}).save(folder / "empty.npy");
  EXPECT_EQ(NpyArray::load(folder / "i2.npy").at(0), -1);
  EXPECT_EQ(NpyArray::load(folder / "i8.npy").at(1), std::int64_t{1} << 40);
  EXPECT_EQ(NpyArray::load(folder / "u4.npy").at(1), 4294967295);
  EXPECT_EQ(NpyArray::load(folder / "empty.npy").size(), 0);
}

TEST(Npy, RefusesBrokenFiles) {
  TemporaryFolder folder;
  NpyArray(std::vector<std::int32_t>{1, 2, 3}).save(folder / "good.npy");
  const std::string good = test::read_text_file(folder / "good.npy");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not a NumPy array"},
      {good.substr(0, 9), "not a NumPy array"},
      {good.substr(0, 60), "truncated header"},
      {good.substr(0, good.size() - 1), "declares 3 values"},
      {good + "1234", "bytes follow the values: the header declares 12 bytes, the file holds 16"},
      {"X" + good.substr(1), "not a NumPy array"},
      {with("<i4", "<f4"), "'descr'"},
      {with("False", "True "), "fortran_order"},
      {with("(3,)", "(-3)"), "'shape'"},
      {with("(3,), }                  ", "(9223372036854775807, 9),"), "too large"},
      {with("'shape'", "'shapx'"), "'shape'"},
  };
  for (const auto& [content, message] : cases) {
    test::write_text_file(folder / "bad.npy", content);
    const std::string error = message_of([&] { NpyArray::load(folder / "bad.npy"); });
    EXPECT_NE(error.find(message), std::string::npos) << message << " in: " << error;
    EXPECT_NE(error.find("bad.npy"), std::string::npos);
  }
}

}  // namespace
}  // namespace megatron
