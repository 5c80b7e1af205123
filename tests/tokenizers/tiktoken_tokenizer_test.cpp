// Compares ids and texts with the real `tiktoken` package (fixtures/tiktoken_*.jsonl by
// make_fixtures.py), and checks what broken files say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::Case;
using testing::fixture;
using ::testing::HasSubstr;

void expect_cases(const Tokenizer& tokenizer, const std::string& name) {
  const auto cases = testing::cases_of(name);
  ASSERT_EQ(cases.size(), 33u);
  for (int again = 0; again < 2; ++again)  // words come from the cache the second time
    for (const Case& expected : cases) {
      EXPECT_EQ(tokenizer.encode(expected.line), expected.ids) << expected.line;
      EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::skip), expected.text);
      EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::keep), expected.kept);
    }
}

struct Named {
  const char* fixture;
  const char* pattern;
};

class TiktokenPattern : public ::testing::TestWithParam<Named> {};

TEST_P(TiktokenPattern, EncodesAndDecodesAsTheRealPackage) {
  const auto [name, pattern] = GetParam();
  const auto tokenizer =
      testing::open({.tokenizer_model = fixture("small.tiktoken"), .tiktoken_pattern = pattern});
  EXPECT_EQ(tokenizer->name(), "TikTokenizer");
  expect_cases(*tokenizer, std::string("tiktoken_") + name);
  EXPECT_EQ(tokenizer->decode(std::vector{tokenizer->eod()}, SpecialTokens::keep), "<|endoftext|>");
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->eod() + 1);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TiktokenPattern,
                         ::testing::Values(Named{"r50k_base", "r50k_base"},
                                           Named{"cl100k_base", "cl100k_base"},
                                           Named{"o200k_base", "o200k_base"},
                                           Named{"llama3", "llama3"}, Named{"qwen", "qwen"},
                                           Named{"tekken", "tekken"}, Named{"v1", "v1"},
                                           Named{"regex", R"(\w+|[^\w\s]{1,2}|\s+(?!\S)|\s+)"}));

TEST(Tiktoken, MegatronsListReadsSpecialTokensFromTheText) {
  const auto tokenizer = testing::open({.tokenizer_model = fixture("list.json"),
                                        .vocab_size = 719,
                                        .tiktoken_num_special_tokens = 20});
  expect_cases(*tokenizer, "tiktoken_megatron_list");
  EXPECT_EQ(tokenizer->eod(), 2);
  EXPECT_EQ(tokenizer->pad(), 4);
}

std::string all_bytes_as_tekken(const std::string& parts) {
  static const char* const kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string entries;
  for (int byte = 0; byte < 256; ++byte)
    entries += std::string(byte == 0 ? "" : ",") + R"({"rank":)" + std::to_string(byte) +
               R"(,"token_bytes":")" + kDigits[byte >> 2] + kDigits[(byte & 3) << 4] + "==\"}";
  return R"({"config":{"pattern":"\\w+|\\W","default_vocab_size":276,)"
         R"("default_num_special_tokens":20},"vocab":[)" +
         entries + "]" + parts + "}";
}

TEST(Tiktoken, TekkenTakesItsPatternAndSpecialTokensFromTheFile) {
  const TemporaryFolder folder;
  const auto tokenizer =
      testing::open({.tokenizer_model = folder.write("tekken.json", all_bytes_as_tekken(""))});
  EXPECT_EQ(tokenizer->vocab_size(), 276);
  EXPECT_EQ(tokenizer->encode("a </s>"), (std::vector<std::int32_t>{117, 52, 80, 67, 135, 82}));
  const std::vector<std::int32_t> ids{1, 117, 3, 2};
  EXPECT_EQ(tokenizer->decode(ids), "a");
  EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::keep), "<s>a[INST]</s>");
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eod(), 2);
  EXPECT_EQ(tokenizer->pad(), 11);
  const auto named =
      testing::open({.tokenizer_model = folder.write(
                         "own.json", all_bytes_as_tekken(R"(,"special_tokens":[{"rank":0,)"
                                                         R"("token_str":"</s>"}])"))});
  EXPECT_EQ(named->eod(), 0);
  EXPECT_EQ(named->decode(std::vector{0, 7}, SpecialTokens::keep), "</s><SPECIAL_7>");
}

std::string error_of(const std::string& name, const std::string& content,
                     const std::string& pattern = "") {
  const TemporaryFolder folder;
  return message_of([&] {
    testing::open({.tokenizer_type = "TikTokenizer",
                   .tokenizer_model = folder.write(name, content),
                   .tiktoken_pattern = pattern});
  });
}

TEST(Tiktoken, BrokenFilesNameTheLineOrField) {
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\nIg= 1\n"), HasSubstr("line 2 must be a token"));
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\nIg== -1\n"), HasSubstr("line 2 must be a token"));
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\nIg==\n"), HasSubstr("line 2 must be a token"));
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\nIg== 0\n"), HasSubstr("rank 0 is given twice"));
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\nIQ== 1\n"), HasSubstr("rank 1 is given twice"));
  EXPECT_THAT(error_of("a.tiktoken", "IQ== 0\n"), HasSubstr("the token of byte 0 is missing"));
  const std::string whole = read_file(fixture("small.tiktoken"));
  EXPECT_THAT(error_of("a.tiktoken", whole), HasSubstr("is no published vocabulary"));
  EXPECT_THAT(error_of("a.tiktoken", whole, "klingon"), HasSubstr("names no pattern"));
  EXPECT_THAT(error_of("a.tiktoken", whole, "(a"), HasSubstr("--tiktoken-pattern: the regular"));
  EXPECT_THAT(error_of("a.json", "{\"vocab\": []}"), HasSubstr("field 'config' is missing"));
  EXPECT_THAT(error_of("a.json", "[]"), HasSubstr("the vocabulary needs 130072"));
  EXPECT_THAT(error_of("a.json", R"([{"rank":1,"token_bytes":"AA=="}])"),
              HasSubstr("vocabulary[0]: field 'rank' must be 0"));
  EXPECT_THAT(error_of("a.json", R"([{"rank":0,"token_bytes":"A"}])"),
              HasSubstr("vocabulary[0]: field 'token_bytes' must be base64"));
  EXPECT_THAT(error_of("a.json", all_bytes_as_tekken(R"(,"special_tokens":[{"rank":3}])")),
              HasSubstr("special_tokens[0] must be an object"));
}

TEST(Tiktoken, DamagedFilesEndInAnError) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  for (const auto& [name, whole] :
       {std::pair<std::string, std::string>{"a.tiktoken", read_file(fixture("small.tiktoken"))},
        {"tekken.json", all_bytes_as_tekken("")}}) {
    for (int round = 0; round < 300; ++round) {
      std::string content = whole;
      for (int change = 0; change < 3; ++change)
        content[random() % content.size()] = static_cast<char>(random());
      if (round % 3 == 0) content.resize(random() % content.size());
      try {
        const auto tokenizer = testing::open({.tokenizer_type = "TikTokenizer",
                                              .tokenizer_model = folder.write(name, content),
                                              .tiktoken_pattern = "r50k_base"});
        tokenizer->decode(tokenizer->encode(content.substr(0, 100)));
      } catch (const UserError& error) {
        EXPECT_FALSE(error.parts().what.empty());
      }
    }
  }
}

}  // namespace
}  // namespace megatron
