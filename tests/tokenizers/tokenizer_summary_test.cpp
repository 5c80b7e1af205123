// The figures are counted by hand from the fixtures.
#include "megatron/tokenizers/tokenizer_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "helpers.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

TEST(TokenizerSummary, CountsTokens) {
  const TokenizerSummary summary =
      summarize(*testing::open({.tokenizer_model = testing::fixture("llama3.json")}));
  const Json json = read_json(testing::fixture("llama3.json"));
  std::int64_t added = 0;  // those that are not in the model's vocabulary
  for (const Json& token : json.at("added_tokens"))
    if (!json.at("model").at("vocab").contains(token.at("content"))) ++added;
  EXPECT_EQ(summary.num_tokens,
            static_cast<std::int64_t>(json.at("model").at("vocab").size()) + added);
  EXPECT_EQ(summarize(*testing::open({.tokenizer_type = "ByteTokenizer"})).num_tokens, 257);
}

TEST(TokenizerSummary, ListsSpecialTokens) {
  const auto tokenizer = testing::open({.tokenizer_model = testing::fixture("flavours.json")});
  const TokenizerSummary summary = summarize(*tokenizer);
  ASSERT_FALSE(summary.special_tokens.empty());
  EXPECT_EQ(summary.special_tokens[0].token, "<|endoftext|>");
  EXPECT_EQ(summary.special_tokens[0].id, tokenizer->eod());
}

TEST(VocabularyComparison, FindsTokensAndIdsThatDiffer) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& vocab) {
    return testing::open(
        {.tokenizer_model = folder.write(
             name, R"({"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":[]}})")});
  };
  const auto a = open("a.json", R"({"a":0,"b":1,"c":2,"ab":3,"bc":4})"),
             b = open("b.json", R"({"a":0,"b":1,"c":3,"bc":2,"ca":4})");
  const VocabularyComparison compared = compare_vocabularies(*a, *b);
  EXPECT_THAT(compared.only_a, ElementsAre("ab"));
  EXPECT_THAT(compared.only_b, ElementsAre("ca"));
  EXPECT_EQ(compared.num_common, 4);
  ASSERT_EQ(compared.moved.size(), 2u);
  EXPECT_EQ(compared.moved[0].token, "c");
  EXPECT_EQ(compared.moved[0].id_a, 2);
  EXPECT_EQ(compared.moved[0].id_b, 3);
  EXPECT_FALSE(compared.is_same());
  EXPECT_TRUE(compare_vocabularies(*a, *a).is_same());
}

}  // namespace
}  // namespace megatron
