#include "megatron/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

void write(const fs::path& path, const std::string& content) {
  fs::remove(path);  // rewriting a file in place would wait for the disk
  FileWriter writer(path);
  writer.write(content);
  writer.close();
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The bytes that the real package writes for safetensors.numpy.save({"b": float32 [1.5, -2],
// "a": int8 [[3]]}).
const std::string kReal =
    with_header(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("a":{"dtype":"I8","shape":[1,1],"data_offsets":[8,9]}}   )",
                std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0\x03", 9));

TEST(Safetensors, ReadsAFileOfTheRealPackage) {
  const TemporaryFolder folder;
  write(folder / "x", kReal);
  const SafetensorsFile file(folder / "x");
  ASSERT_EQ(file.tensors().size(), 2u);
  const StoredTensor* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, SafetensorsDtype::F32);
  EXPECT_EQ(b->shape, Shape{2});
  float values[2];
  std::memcpy(values, file.bytes(*b).data(), sizeof values);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(file.find("a")->shape, (Shape{1, 1}));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, WritesAlignedTensorsThatReadBack) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "x",
                           {{"bytes", SafetensorsDtype::U8, {3}},
                            {"none", SafetensorsDtype::F32, {0, 4}},
                            {"double", SafetensorsDtype::F64, {}}},
                           {{"format", "pt"}});
  ASSERT_EQ(writer.order()[0].name, "double");
  ASSERT_EQ(writer.order()[2].name, "bytes");
  writer.write(as_bytes("12345678"));
  writer.write({});
  writer.write(as_bytes("abc"));
  writer.close();
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_EQ(
        reinterpret_cast<std::uintptr_t>(file.bytes(tensor).data()) % element_size(tensor.type), 0u)
        << tensor.name;
  }
  EXPECT_EQ(std::memcmp(file.bytes(*file.find("bytes")).data(), "abc", 3), 0);
  EXPECT_EQ(file.find("none")->shape, (Shape{0, 4}));
}

struct BrokenFile {
  std::string name, content;
  std::vector<std::string> words;
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::vector<BrokenFile> broken_files() {
  const std::string four(4, 'x'), eight(8, 'x');
  return {
      {"empty", "", {"too short"}},
      {"short", "1234567", {"too short", "7 bytes"}},
      {"length over 100 MB",
       std::string("\xff\xff\xff\xff\x00\x00\x00\x00{}", 10),
       {"exceeds 100 MB"}},
      {"length over the file", with_header("{}", "").substr(0, 9), {"exceeds the file"}},
      {"not an object", with_header("[]", ""), {"must be a JSON object"}},
      {"no JSON", with_header("{x}", ""), {"not valid JSON"}},
      {"deep", with_header("{\"a\":" + std::string(5000, '['), ""), {"nested deeper"}},
      {"not UTF-8", with_header("{\"\xff\":1}", ""), {"not valid JSON"}},
      {"entry of another type", with_header(R"({"t":3})", ""), {"'t'"}},
      {"no dtype",
       with_header(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", four),
       {"'t'", "dtype"}},
      {"unknown dtype",
       with_header(one("F33", "[1]", "[0,4]"), four),
       {"'t'", "unknown dtype", "F33"}},
      {"negative shape", with_header(one("F32", "[-1]", "[0,4]"), four), {"'t'", "shape"}},
      {"fractional shape", with_header(one("F32", "[1.5]", "[0,4]"), four), {"'t'", "shape"}},
      {"huge shape",
       with_header(one("F32", "[4611686018427387904,4611686018427387904,16]", "[0,4]"), four),
       {"'t'", "do not match"}},
      {"shape not a list",
       with_header(one("F32", "4", "[0,4]"), four),
       {"'t'", "'shape' must be an array"}},
      {"wrong size",
       with_header(one("F32", "[2]", "[0,4]"), four),
       {"'t'", "do not match data_offsets"}},
      {"backwards", with_header(one("F32", "[1]", "[4,0]"), four), {"'t'", "backwards"}},
      {"outside", with_header(one("F32", "[2]", "[0,8]"), four), {"'t'", "outside the file"}},
      {"one offset", with_header(one("F32", "[1]", "[0]"), four), {"'t'", "[begin, end]"}},
      {"negative offset", with_header(one("F32", "[1]", "[-4,0]"), four), {"'t'", "non-negative"}},
      {"hole", with_header(one("F32", "[1]", "[4,8]"), eight), {"'t'", "hole"}},
      {"overlap",
       with_header(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   four),
       {"'u'", "overlaps"}},
      {"trailing bytes", with_header(one("F32", "[1]", "[0,4]"), eight), {"size does not match"}},
      {"twice",
       with_header(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   eight),
       {"'t'", "twice"}},
      {"unknown field",
       with_header(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", four),
       {"'t'", "unknown field", "x"}},
      {"metadata", with_header(R"({"__metadata__":{"a":1}})", ""), {"__metadata__", "'a'"}},
  };
}

TEST(Safetensors, NamesFileAndTensorOfABrokenFile) {
  const TemporaryFolder folder;
  for (BrokenFile broken : broken_files()) {
    write(folder / "broken.safetensors", broken.content);
    broken.words.push_back("broken.safetensors");
    expect_user_error([&] { SafetensorsFile file(folder / "broken.safetensors"); }, broken.words,
                      broken.name);
  }
  expect_user_error([&] { SafetensorsFile file(folder / "absent"); }, {"absent"});
  expect_user_error([&] { SafetensorsFile file(folder.path()); }, {folder.path().string()});
}

TEST(Safetensors, SurvivesRandomDamage) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  std::size_t accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    write(folder / "x", mutate(kReal, random));
    try {
      const SafetensorsFile file(folder / "x");
      for (const StoredTensor& tensor : file.tensors())
        accepted += file.bytes(tensor).size() == tensor.num_bytes();
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
  EXPECT_GT(accepted, 0u);
}

}  // namespace
}  // namespace megatron
