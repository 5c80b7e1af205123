// The figures are counted by hand from the fixtures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "helpers.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/inspection/component_words.h"
#include "megatron/tokenizers/inspection/text_statistics.h"
#include "megatron/tokenizers/inspection/tokenizer_description.h"
#include "megatron/tokenizers/inspection/vocabulary_comparison.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

TokenizerConfig config_of(const std::string& file, const std::string& pattern = "") {
  TokenizerConfig config;
  config.tokenizer_model = testing::fixture(file);
  config.tiktoken_pattern = pattern;
  return config;
}

TokenizerDescription describe(const TokenizerConfig& config) {
  return describe_tokenizer(config, *make_tokenizer(config));
}

TEST(TokenizerDescription, NamesTheStagesOfATokenizerJson) {
  const TokenizerDescription about = describe(config_of("llama3.json"));
  EXPECT_EQ(about.type, "HuggingFaceTokenizer");
  EXPECT_EQ(about.model, "BPE");
  EXPECT_EQ(about.normalizer, "none");
  EXPECT_EQ(about.pre_tokenizer, "Llama 3's pattern, then bytes as characters");
  EXPECT_EQ(about.decoder, "characters to bytes");
  EXPECT_EQ(about.covered_bytes, 256);
  EXPECT_EQ(about.spelling, TokenSpelling::byte_level);
  const Json json = read_json(testing::fixture("llama3.json"));
  EXPECT_EQ(about.num_merges, static_cast<std::int64_t>(json.at("model").at("merges").size()));
  std::int64_t added = 0;  // those that are not in the model's vocabulary
  for (const Json& token : json.at("added_tokens"))
    if (!json.at("model").at("vocab").contains(token.at("content"))) ++added;
  EXPECT_EQ(about.num_tokens,
            static_cast<std::int64_t>(json.at("model").at("vocab").size()) + added);
}

TEST(TokenizerDescription, KnowsEveryKindOfFile) {
  const TokenizerDescription bert = describe(config_of("bert.json"));
  EXPECT_EQ(bert.model, "WordPiece");
  EXPECT_EQ(bert.post_processor, "[CLS] text [SEP]");
  EXPECT_EQ(bert.unk, 1);
  EXPECT_LT(bert.covered_bytes, 256);
  const TokenizerDescription tiktoken = describe(config_of("small.tiktoken", "cl100k_base"));
  EXPECT_EQ(tiktoken.model, "BPE by ranks");
  EXPECT_EQ(tiktoken.pre_tokenizer, "cl100k_base's pattern");
  EXPECT_EQ(tiktoken.covered_bytes, 256);
  const TokenizerDescription bytes = describe(config_of("sp_bpe_bytes.model"));
  EXPECT_EQ(bytes.model, "BPE with byte fallback");
  EXPECT_EQ(bytes.covered_bytes, 256);
  EXPECT_EQ(describe(config_of("sp_unigram_symbols.model")).model, "Unigram");
  TokenizerConfig gpt2;
  gpt2.vocab_file = testing::fixture("gpt2/vocab.json");
  gpt2.merge_file = testing::fixture("gpt2/merges.txt");
  EXPECT_EQ(describe(gpt2).num_merges, 444);
  TokenizerConfig byte;
  byte.tokenizer_type = "ByteTokenizer";
  EXPECT_EQ(describe(byte).num_tokens, 257);
}

TEST(TokenizerDescription, ListsSpecialAndOtherAddedTokens) {
  const TokenizerDescription about = describe(config_of("flavours.json"));
  ASSERT_FALSE(about.special_tokens.empty());
  EXPECT_EQ(about.special_tokens[0].token, "<|endoftext|>");
  EXPECT_EQ(about.special_tokens[0].id, about.eod);
  ASSERT_FALSE(about.added_tokens.empty());
  EXPECT_EQ(about.added_tokens[0].token, "<think>");
}

TEST(TokenText, IsWhatTheTokenStandsFor) {
  EXPECT_EQ(token_text("Ġthe", TokenSpelling::byte_level), " the");
  EXPECT_EQ(token_text("▁a▁", TokenSpelling::metaspace), " a ");
  EXPECT_EQ(token_text("<0x0A>", TokenSpelling::metaspace), "\n");
  EXPECT_EQ(token_text("##x", TokenSpelling::plain), "##x");
}

TEST(ComponentWords, NameWhatEachStageDoes) {
  EXPECT_EQ(normalizer_words(nullptr), "none");
  EXPECT_EQ(normalizer_words({{"type", "Sequence"},
                              {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}}),
            "NFKC, then lower case");
  EXPECT_EQ(normalizer_words({{"type", "BertNormalizer"}, {"lowercase", false}}),
            "BERT's: controls removed, spaces around Chinese characters");
  EXPECT_EQ(pre_tokenizer_words({{"type", "Split"},
                                 {"pattern", {{"Regex", "a+"}}},
                                 {"behavior", "Removed"},
                                 {"invert", true}}),
            "the pattern a+ (Removed), inverted");
  EXPECT_EQ(pre_tokenizer_words({{"type", "Metaspace"}, {"replacement", "▁"}}),
            "spaces as ▁, one before it, split before them");
  EXPECT_EQ(decoder_words({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}),
            "parts with ## joined to the part before");
  EXPECT_EQ(post_processor_words(
                {{"type", "RobertaProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 2}}}),
            "<s> text </s>");
  EXPECT_EQ(decoder_words({{"type", "New"}}), "New");
}

TEST(TextStatistics, CountsWordsBetweenWhiteSpace) {
  TextStatistics text;
  text.add("\té  b\u3000b\n", {1, 2, 0, 0, 3}, 0);
  EXPECT_EQ(text.bytes, 11);
  EXPECT_EQ(text.characters, 8);
  EXPECT_EQ(text.words, 3);
  EXPECT_EQ(text.tokens, 5);
  EXPECT_EQ(text.unknown_tokens, 2);
  EXPECT_EQ(text.distinct_words.size(), 2u);
  TextStatistics both;
  both.merge(text);
  both.merge(text);
  EXPECT_DOUBLE_EQ(both.bytes_per_token(), 11.0 / 5);
  EXPECT_DOUBLE_EQ(both.tokens_per_word(), 5.0 / 3);
}

TEST(WordStatistics, FindsTheWordsOfMostTokens) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_model = folder.write(
      "tokenizer.json",
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ġab":4},)"
      R"("merges":["a b","Ġ ab"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})");
  const auto tokenizer = make_tokenizer(config);
  WordCounts words;
  words.add("ab", 6);   // Ġab
  words.add("abb", 1);  // Ġab b
  words.add("bb", 2);   // Ġ b b
  words.add("ba", 1);   // Ġ b a
  const WordStatistics found = word_statistics(words, *tokenizer, TokenSpelling::byte_level, 3);
  EXPECT_DOUBLE_EQ(found.divided_share, 0.4);
  ASSERT_EQ(found.longest.size(), 3u);
  EXPECT_EQ(found.longest[0].word, "bb");
  EXPECT_EQ(found.longest[0].tokens, 3);
  EXPECT_EQ(found.longest[1].word, "ba");
  EXPECT_EQ(found.longest[2].word, "abb");
}

TEST(VocabularyComparison, FindsTokensIdsAndMergesThatDiffer) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& vocab,
                         const std::string& merges) {
    TokenizerConfig config;
    config.tokenizer_model = folder.write(
        name, R"({"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges + "}}");
    return config;
  };
  const TokenizerConfig a =
      write("a.json", R"({"a":0,"b":1,"c":2,"ab":3,"bc":4})", R"(["a b","b c"])");
  const TokenizerConfig b =
      write("b.json", R"({"a":0,"b":1,"c":3,"bc":2,"ca":4})", R"(["b c","c a"])");
  const auto tokenizer_a = make_tokenizer(a), tokenizer_b = make_tokenizer(b);
  const ComparedTokenizer side_a{*tokenizer_a, TokenSpelling::plain, merges_of(a)},
      side_b{*tokenizer_b, TokenSpelling::plain, merges_of(b)};
  const VocabularyComparison compared = compare_vocabularies(side_a, side_b);
  EXPECT_THAT(compared.only_a, ElementsAre("ab"));
  EXPECT_THAT(compared.only_b, ElementsAre("ca"));
  EXPECT_EQ(compared.num_common, 4);
  ASSERT_EQ(compared.moved.size(), 2u);
  EXPECT_EQ(compared.moved[0].token, "c");
  EXPECT_EQ(compared.moved[0].id_b, 3);
  ASSERT_TRUE(compared.first_merge);
  EXPECT_EQ(compared.first_merge->index, 0);
  EXPECT_EQ(compared.first_merge->merge_a, "a b");
  EXPECT_EQ(compared.num_merges_only_a, 1);
  EXPECT_FALSE(compared.is_same());
  EXPECT_TRUE(compare_vocabularies(side_a, side_a).is_same());
}

TEST(VocabularyComparison, ComparesTextsOfOtherSpellings) {
  const TokenizerConfig gpt2 = config_of("gpt2.json"), llama2 = config_of("llama2.json");
  const auto a = make_tokenizer(gpt2), b = make_tokenizer(llama2);
  const VocabularyComparison compared =
      compare_vocabularies({*a, TokenSpelling::byte_level, {}}, {*b, TokenSpelling::metaspace, {}});
  EXPECT_TRUE(compared.compares_texts);
  EXPECT_GE(compared.num_common, 256);  // all bytes
}

}  // namespace
}  // namespace megatron
