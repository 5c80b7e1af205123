#include "megatron/formats/gguf.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "formats/fixtures.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

using nlohmann::json;

GgufFile read(const std::string& content) {
  return read_gguf(std::as_bytes(std::span(content)), "model.gguf");
}

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

TEST(Gguf, ReadsWhatThePackageWrote) {
  const json expected = json::parse(read_file(fixture("gguf.json")));
  const std::string content = read_file(fixture("model.gguf"));
  GgufFile file = read(content);
  EXPECT_EQ((*file.metadata)["general.architecture"], "test");
  for (const auto& [key, value] : expected["metadata"].items())
    EXPECT_EQ((*file.metadata)[key], value) << key;
  ASSERT_EQ(file.tensors.size(), expected["tensors"].size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const GgufTensor& tensor = file.tensors[i];
    const json& facts = expected["tensors"][i];
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.name, facts["name"].get<std::string>());
    EXPECT_EQ(tensor.type.name, facts["type"].get<std::string>());
    EXPECT_EQ(tensor.shape, facts["shape"].get<std::vector<std::int64_t>>());
    EXPECT_EQ(to_hex(content.substr(tensor.bytes.begin, tensor.bytes.size())),
              facts["hex"].get<std::string>());
  }
}

TEST(Gguf, WritesWhatItReads) {
  const Json metadata = {{"a", "text"},  {"b", 7U},           {"c", -7},
                         {"d", 1e-6},    {"e", true},         {"f", {"", "x y"}},
                         {"g", {1, -2}}, {"h", {0.5, -3.25}}, {"i", Json::array()}};
  std::vector<GgufTensor> tensors{{.name = "w", .type = kGgufQ80, .shape = {3, 64}},
                                  {.name = "v", .type = kGgufBf16, .shape = {5}},
                                  {.name = "empty", .shape = {0, 4}}};
  std::string content = gguf_header(metadata, tensors);
  EXPECT_EQ(content.size() % 32, 0U);
  EXPECT_EQ(tensors[0].bytes, (ByteRange{content.size(), content.size() + 204}));
  content.resize(tensors.back().bytes.end);
  const GgufFile file = read(content);
  EXPECT_EQ(*file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file.tensors[i].name, tensors[i].name);
    EXPECT_EQ(file.tensors[i].type, tensors[i].type);
    EXPECT_EQ(file.tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(file.tensors[i].bytes, tensors[i].bytes);
  }
}

TEST(Gguf, NamesTheByteOfWhatIsWrong) {
  const std::string content = read_file(fixture("model.gguf"));
  const auto expect = [&](std::size_t at, const std::string& bytes,
                          const std::vector<std::string>& words) {
    std::string damaged = content;
    damaged.replace(at, bytes.size(), bytes);
    expect_user_error([&] { read(damaged); }, words, words.front());
  };
  expect(0, "GGML", {"model.gguf", "byte 0", "does not begin with GGUF"});
  expect(4, bytes_of<std::uint32_t>(1), {"byte 4", "version is 1, not 2 or 3"});
  expect(4, bytes_of<std::uint32_t>(0x03000000), {"byte 4", "big-endian"});
  expect(8, bytes_of<std::uint64_t>(1 << 30), {"byte 8", "no room for 1073741824 tensors"});
  expect(16, bytes_of(~std::uint64_t{0}), {"byte 16", "no room for 18446744073709551615 metadata"});
  expect(24, bytes_of<std::uint64_t>(1 << 20), {"byte 32", "a key ends behind the file"});
  const std::size_t flag = content.find("test.bool") + 9;
  expect(flag, bytes_of<std::uint32_t>(13), {"'test.bool'", "unknown type 13"});
  expect(flag + 4, "\2", {"'test.bool'", "neither true nor false"});
  expect(content.find("test.i8") + 5, "u8", {"key 'test.u8' is there twice"});
  const std::size_t tensor = content.find("q8_0");
  const std::size_t type = tensor + 4 + 4 + 16;
  expect(type, bytes_of<std::uint32_t>(12),
         {"'q8_0'", "Q4_K at byte " + std::to_string(type), "F32, F16, BF16 or Q8_0"});
  expect(type + 4, bytes_of<std::uint64_t>(1 << 20), {"'q8_0' ends behind the file"});
  expect(type + 4, bytes_of<std::uint64_t>(1), {"'q8_0' is not aligned"});
  expect(tensor + 4, bytes_of<std::uint32_t>(5), {"'q8_0' has more than 4 dimensions"});
  expect(tensor + 8, bytes_of<std::uint64_t>(33), {"'q8_0' has rows that are no multiple"});
  expect(tensor + 8, bytes_of(std::uint64_t{1} << 60), {"'q8_0' is too large"});
}

TEST(Gguf, ArraysInArraysAreReadToADepth) {
  for (const int depth : {2, 5}) {
    Json array = Json::array({7});
    for (int i = 1; i < depth; ++i) array = Json::array({array});
    std::vector<GgufTensor> none;
    const std::string content = gguf_header({{"k", array}}, none);
    if (depth == 2)
      EXPECT_EQ(read(content).metadata->at("k"), array);
    else
      expect_user_error([&] { read(content); }, {"too many arrays in each other"});
  }
}

TEST(Gguf, RefusesRandomDamageOrReadsIt) {
  const std::string content = read_file(fixture("model.gguf"));
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const std::string damaged = mutate(content, random);
    try {
      for (const GgufTensor& tensor : read(damaged).tensors) {
        ASSERT_LE(tensor.bytes.end, damaged.size());
        ASSERT_EQ(tensor.bytes.size(), tensor.num_bytes());
      }
    } catch (const UserError&) {  // expected of what is damaged
    }
  }
}

}  // namespace
}  // namespace megatron
