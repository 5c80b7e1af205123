// Compares ids and texts with the real `tokenizers` package (fixtures/*.jsonl by make_fixtures.py).
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::fixture;
using testing::TemporaryFolder;

struct Case {
  std::string line;
  std::vector<std::int32_t> ids;
  std::string text, kept;
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<Case> cases_of(const std::string& name) {
  std::istringstream lines(read_file(fixture(name + ".jsonl")));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, name);
    cases.push_back({from_hex(json.at("hex")), json.at("ids"), json.at("text"), json.at("kept")});
  }
  return cases;
}

class Family : public ::testing::TestWithParam<const char*> {};

TEST_P(Family, EncodesAndDecodesAsTheRealPackage) {
  const HuggingFaceTokenizer tokenizer(fixture(GetParam() + std::string(".json")));
  const auto cases = cases_of(GetParam());
  ASSERT_EQ(cases.size(), 100u);
  for (const Case& expected : cases) {
    EXPECT_EQ(tokenizer.encode(expected.line), expected.ids) << expected.line;
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::skip), expected.text);
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::keep), expected.kept);
  }
}

TEST_P(Family, EncodesTheSameFromManyThreads) {
  const HuggingFaceTokenizer tokenizer(fixture(GetParam() + std::string(".json")));
  const auto cases = cases_of(GetParam());
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (const Case& expected : cases) count += tokenizer.encode(expected.line) != expected.ids;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Family,
                         ::testing::Values("gpt2", "llama3", "qwen2", "flavours"));

TEST(Gpt2BpeTokenizer, GivesTheIdsOfTheSameTokenizerJson) {
  const Gpt2BpeTokenizer tokenizer(fixture("gpt2/vocab.json"), fixture("gpt2/merges.txt"));
  int compared = 0;
  for (const Case& expected : cases_of("gpt2")) {
    if (expected.line.find("<|endoftext|>") != std::string::npos) continue;
    EXPECT_EQ(tokenizer.encode(expected.line), expected.ids) << expected.line;
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::skip), expected.text);
    ++compared;
  }
  EXPECT_GT(compared, 70);
  EXPECT_EQ(tokenizer.eod(), 700);
  EXPECT_EQ(tokenizer.vocab_size(), 701);
}

TEST(Gpt2BpeTokenizer, ReadsTheEndOfTextMarkInADocumentAsText) {
  const Gpt2BpeTokenizer tokenizer(fixture("gpt2/vocab.json"), fixture("gpt2/merges.txt"));
  const auto ids = tokenizer.encode("a<|endoftext|>b");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.eod()), 0);
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::skip), "a<|endoftext|>b");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{700}, SpecialTokens::keep), "<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{700}, SpecialTokens::skip), "");
}

TEST(HuggingFaceTokenizer, TakesSpecialIdsFromTheFilesBeside) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file(fixture("qwen2.json")));
  const HuggingFaceTokenizer alone(folder.path());
  const auto id_of = [&](const char* token) { return alone.encode(token).at(0); };
  EXPECT_EQ(alone.eod(), id_of("<|endoftext|>"));
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}, )"
                                        R"("pad_token": "<|endoftext|>", "bos_token": null})");
  const HuggingFaceTokenizer tokenizer(folder.path());
  EXPECT_EQ(tokenizer.eod(), id_of("<|im_end|>"));
  EXPECT_EQ(tokenizer.pad(), id_of("<|endoftext|>"));
  EXPECT_EQ(tokenizer.bos(), -1);
  EXPECT_EQ(tokenizer.vocab_size(), id_of("</think>") + 1) << "the last added token";
  EXPECT_TRUE(tokenizer.is_special(id_of("<|im_start|>")));
  EXPECT_FALSE(tokenizer.is_special(id_of("<think>"))) << "added but not special";
}

TEST(HuggingFaceTokenizer, DropsIdsOfThePaddedVocabularyInDecode) {
  const HuggingFaceTokenizer tokenizer(fixture("gpt2.json"));
  const auto ids = tokenizer.encode("hello");
  std::vector<std::int32_t> padded = ids;
  padded.insert(padded.begin(), {900, -1, 1 << 30});
  EXPECT_EQ(tokenizer.decode(padded, SpecialTokens::skip), "hello");
}

}  // namespace
}  // namespace megatron
