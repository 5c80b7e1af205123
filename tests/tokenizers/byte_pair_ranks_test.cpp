// Checks merging by rank against its definition, and base64 against RFC 4648.
#include "megatron/tokenizers/byte_pair_ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "megatron/tokenizers/base64.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int32_t>;

/// All bytes, then random concatenations of known tokens.
BytePairRanks random_ranks(std::mt19937& random, std::map<std::string, int>& ranks) {
  BytePairRanks built;
  const auto add = [&](const std::string& token) {
    if (!built.add(token, 3 + static_cast<int>(ranks.size()))) return;
    const int rank = static_cast<int>(ranks.size());
    ranks[token] = rank;
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  std::vector<std::string> tokens = {"a", "b", "c"};
  while (ranks.size() < 300) {
    tokens.push_back(tokens[random() % tokens.size()] + tokens[random() % tokens.size()]);
    add(tokens.back());
  }
  return built;
}

Ids merge_by_definition(const std::map<std::string, int>& ranks, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = 0;
    int rank = 1 << 30;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < rank) best = i, rank = found->second;
    }
    if (rank == 1 << 30) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(3 + ranks.at(part));
  return ids;
}

TEST(BytePairRanks, MergesTheLowestRankFirst) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::map<std::string, int> ranks;
    const BytePairRanks built = random_ranks(random, ranks);
    EXPECT_EQ(built.missing_byte(), -1);
    for (int size : {1, 2, 7, 30, 63, 64, 65, 150, 400}) {
      std::string word;
      for (int i = 0; i < size; ++i) word += static_cast<char>('a' + random() % 3);
      Ids ids;
      built.encode(word, ids);
      const auto whole = ranks.find(word);
      EXPECT_EQ(ids,
                whole == ranks.end() ? merge_by_definition(ranks, word) : Ids{3 + whole->second});
      std::string joined;
      for (const std::int32_t id : ids) joined += built.token(id);
      EXPECT_EQ(joined, word);
    }
  }
}

TEST(BytePairRanks, KnowsItsTokens) {
  BytePairRanks ranks;
  EXPECT_EQ(ranks.find("a"), -1);
  EXPECT_TRUE(ranks.add("a", 2));
  EXPECT_FALSE(ranks.add("a", 3));
  EXPECT_TRUE(ranks.add("bc", 7));
  EXPECT_EQ(ranks.find("bc"), 7);
  EXPECT_EQ(ranks.token(7), "bc");
  for (const int absent : {-1, 0, 1, 3, 6, 8}) EXPECT_EQ(ranks.token(absent), "");
  EXPECT_EQ(ranks.id_limit(), 8);
  EXPECT_EQ(ranks.missing_byte(), 0);
}

TEST(BytePairRanks, LongWordsTakeNoQuadraticTime) {
  BytePairRanks ranks;
  for (int byte = 0; byte < 256; ++byte) ranks.add(std::string(1, static_cast<char>(byte)), byte);
  ranks.add("aa", 256);
  ranks.add("aaaa", 257);
  Ids ids;
  ranks.encode(std::string(1 << 20, 'a'), ids);  // hours, if it were quadratic
  EXPECT_EQ(ids, Ids(1 << 18, 257));
}

TEST(Base64, DecodesTheVectorsOfRfc4648) {
  for (const auto& [text, bytes] : {std::pair{"Zg==", "f"},
                                    {"Zm8=", "fo"},
                                    {"Zm9v", "foo"},
                                    {"Zm9vYg==", "foob"},
                                    {"Zm9vYmE=", "fooba"},
                                    {"Zm9vYmFy", "foobar"}}) {
    std::string out;
    EXPECT_TRUE(append_base64(out, text));
    EXPECT_EQ(out, bytes);
  }
  std::string out;
  for (const char* text : {"", "Zg=", "Zg", "Z===", "Zg==Zg==", "Zm9\xFF", "Z m9"})
    EXPECT_FALSE(append_base64(out, text)) << text;
}

}  // namespace
}  // namespace megatron
