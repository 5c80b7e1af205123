// Checks BPE against merges computed by hand, and both merge algorithms against the definition.
#include "megatron/tokenizers/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

Bpe make(const nlohmann::json& vocab, const Bpe::Merges& merges, BpeOptions options = {}) {
  return Bpe(Vocabulary(vocab, "vocab"), merges, std::move(options), "test");
}

Ids encode(const Bpe& bpe, std::string_view word) {
  Ids ids;
  bpe.encode(word, ids);
  return ids;
}

const nlohmann::json kVocab = {{"a", 0},  {"b", 1},   {"c", 2},    {"ab", 3},
                               {"bc", 4}, {"abc", 5}, {"<unk>", 6}};

TEST(Bpe, MergesLowestRankLeftmostFirst) {
  const Bpe bpe = make(kVocab, {{"b", "c"}, {"a", "b"}});
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(bpe, "ababc"), ElementsAre(3, 0, 4));
  EXPECT_THAT(encode(bpe, ""), ElementsAre());
}

TEST(Bpe, SeveralMergesMakeOneToken) {
  const Bpe::Merges merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}, {"a", "bc"}};
  EXPECT_THAT(encode(make(kVocab, merges), "abc"), ElementsAre(5));
  EXPECT_THAT(encode(make(kVocab, {merges[1], merges[2], merges[3]}), "abc"), ElementsAre(5));
  EXPECT_THAT(encode(make(kVocab, {merges[0], merges[3], merges[2]}), "abc"), ElementsAre(5));
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  EXPECT_THAT(encode(make(kVocab, {{"b", "c"}}, {.ignore_merges = true}), "abc"), ElementsAre(5));
  const Bpe bpe = make(kVocab, {{"b", "c"}});
  for (int again = 0; again < 3; ++again)
    EXPECT_THAT(encode(bpe, "abc"), ElementsAre(0, 4)) << "the memo must not change the answer";
  for (int again = 0; again < 3; ++again) EXPECT_THAT(encode(bpe, "bc"), ElementsAre(4));
}

TEST(Bpe, UnknownCharacters) {
  EXPECT_THAT(encode(make(kVocab, {}), "axxb"), ElementsAre(0, 1))
      << "dropped, as the tokenizers package does";
  EXPECT_THAT(encode(make(kVocab, {}, {.unk_token = "<unk>"}), "axxb"), ElementsAre(0, 6, 6, 1));
  EXPECT_THAT(encode(make(kVocab, {}, {.unk_token = "<unk>", .fuse_unk = true}), "axxb"),
              ElementsAre(0, 6, 1));
  nlohmann::json bytes = kVocab;
  bytes["<0xC3>"] = 7;
  bytes["<0xA9>"] = 8;
  const BpeOptions fallback{.unk_token = "<unk>", .byte_fallback = true};
  EXPECT_THAT(encode(make(bytes, {}, fallback), "a\u00e9x"), ElementsAre(0, 7, 8, 6));
}

// Values printed by tokenizers 0.23: byte tokens come before the unknown characters around them.
TEST(Bpe, ByteFallbackDoesNotEndARunOfUnknownCharacters) {
  const nlohmann::json vocab = {{"a", 0}, {"b", 1}, {"<unk>", 2}, {"<0xC3>", 3}, {"<0xA9>", 4}};
  const Bpe each = make(vocab, {}, {.unk_token = "<unk>", .byte_fallback = true});
  EXPECT_THAT(encode(each, "x\u00e9x"), ElementsAre(3, 4, 2, 2));
  EXPECT_THAT(encode(each, "ax\u00e9xxb"), ElementsAre(0, 3, 4, 2, 2, 2, 1));
  const Bpe fused =
      make(vocab, {}, {.unk_token = "<unk>", .fuse_unk = true, .byte_fallback = true});
  EXPECT_THAT(encode(fused, "x\u00e9x"), ElementsAre(3, 4, 2));
  EXPECT_THAT(encode(fused, "ax\u00e9xxb"), ElementsAre(0, 3, 4, 2, 1));
}

TEST(Bpe, PrefixAndSuffix) {
  const nlohmann::json vocab = {{"a", 0}, {"##b", 1}, {"##b</w>", 2}, {"ab</w>", 3}, {"a</w>", 4}};
  const BpeOptions options{.continuing_subword_prefix = "##", .end_of_word_suffix = "</w>"};
  EXPECT_THAT(encode(make(vocab, {{"a", "##b</w>"}}, options), "ab"), ElementsAre(3));
  EXPECT_THAT(encode(make(vocab, {}, options), "abb"), ElementsAre(0, 1, 2));
  EXPECT_THAT(encode(make(vocab, {}, options), "a"), ElementsAre(4));
}

/// Merges by the definition: searches all pairs after every merge.
Ids by_definition(const nlohmann::json& vocab, const Bpe::Merges& merges, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = merges.size(), place = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
      const auto rank = static_cast<std::size_t>(found - merges.begin());
      if (rank < best) best = rank, place = i;
    }
    if (best == merges.size()) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(vocab.at(part));
  return ids;
}

TEST(Bpe, ShortAndLongWordsFollowTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 30; ++round) {
    nlohmann::json vocab = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<std::string> tokens{"a", "b", "c"};
    Bpe::Merges merges;
    for (int i = 0; i < 40; ++i) {
      const auto pair =
          std::pair(tokens[random() % tokens.size()], tokens[random() % tokens.size()]);
      if (std::find(merges.begin(), merges.end(), pair) != merges.end()) continue;
      merges.push_back(pair);
      const std::string merged = pair.first + pair.second;
      if (vocab.contains(merged)) continue;
      vocab[merged] = tokens.size();
      tokens.push_back(merged);
    }
    const Bpe bpe = make(vocab, merges);
    for (const std::size_t length : {2, 7, 23, 24, 25, 26, 60, 200}) {
      std::string word;
      while (word.size() < length) word += "abc"[random() % 3];
      EXPECT_EQ(encode(bpe, word), by_definition(vocab, merges, word)) << word;
    }
  }
}

}  // namespace
}  // namespace megatron
