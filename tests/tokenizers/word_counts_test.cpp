#include "megatron/tokenizers/training/word_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/tokenizers/training/word_counter.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::map<std::string, std::int64_t> map_of(const WordCounts& counts) {
  std::map<std::string, std::int64_t> result;
  for (const CountedWord& word : counts.words()) result.emplace(word.word, word.count);
  return result;
}

TEST(WordCounts, CountsAndMerges) {
  WordCounts counts, other;
  for (int i = 0; i < 5000; ++i) counts.add(std::to_string(i % 1500));
  EXPECT_EQ(counts.size(), 1500u);
  EXPECT_EQ(counts.total(), 5000);
  other.add("7", 10);
  other.add("new");
  counts.merge(other);
  EXPECT_EQ(counts.size(), 1501u);
  EXPECT_EQ(counts.total(), 5011);
  EXPECT_EQ(map_of(counts).at("7"), 14);  // 7, 1507, 3007, 4507
  EXPECT_EQ(map_of(counts).at("999"), 3);
}

TEST(WordCounter, CountsTheBytesOfByteLevelWordsAndWritesThemAsCharacters) {
  const WordCounter counter(nullptr, {{"type", "ByteLevel"}, {"add_prefix_space", false}});
  WordCounts counts;
  counter.count("é a a\n", counts);
  EXPECT_THAT(map_of(counts), ElementsAre(Pair("\n", 1), Pair(" a", 2), Pair("é", 1)));
  EXPECT_THAT(map_of(counter.finish(std::move(counts))),
              UnorderedElementsAre(Pair("Ċ", 1), Pair("Ġa", 2), Pair("Ã©", 1)));
}

TEST(WordCounter, NormalizesBeforeItSplits) {
  const WordCounter counter({{"type", "Lowercase"}}, {{"type", "WhitespaceSplit"}});
  WordCounts counts;
  counter.count("The the  THE", counts);
  EXPECT_THAT(map_of(counter.finish(std::move(counts))), ElementsAre(Pair("the", 3)));
}

}  // namespace
}  // namespace megatron
