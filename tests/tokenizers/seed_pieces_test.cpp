// The expected pieces are those of UnigramTrainer of the `tokenizers` package with
// n_sub_iterations=0, which trains nothing.
#include "megatron/tokenizers/training/seed_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace megatron {
namespace {

using ::testing::ElementsAre;

const std::vector<CountedWord> kWords{{"this", 3}, {"is", 1},      {"a", 1},      {"thing", 1},
                                      {"sing", 1}, {"singing", 1}, {"ababab", 1}, {"aaaa", 1}};

std::vector<std::string> texts(const std::vector<ScoredPiece>& pieces) {
  std::vector<std::string> result;
  for (const auto& [text, score] : pieces) result.push_back(text);
  return result;
}

TEST(SeedPieces, AreCharactersAndBranchingSubstrings) {
  const std::vector<ScoredPiece> pieces = seed_pieces(kWords, {});
  EXPECT_THAT(texts(pieces), ElementsAre("i", "a", "s", "t", "n", "h", "g", "b", "ing", "sing",
                                         "ng", "abab", "thi", "bab", "ab", "aaa", "aa", "hi"));
  EXPECT_NEAR(pieces[8].second, -2.2246235515243336, 1e-14);  // 12 of 111
  EXPECT_NEAR(pieces[12].second, -2.917770732084279, 1e-14);  // 6 of 111
  EXPECT_NEAR(std::exp(pieces[0].second), 8.0 / 111, 1e-15);
}

TEST(SeedPieces, AreNoLongerThanTheLimits) {
  EXPECT_THAT(texts(seed_pieces(kWords, {.max_piece_length = 2})),
              ElementsAre("i", "a", "s", "t", "n", "h", "g", "b", "ng", "ab", "aa", "hi"));
  EXPECT_EQ(seed_pieces(kWords, {.seed_size = 10}).size(), 10u);
}

TEST(SeedPieces, CountCharactersNotBytes) {
  // é and è begin with the same byte, which is no piece; ñé and ñè do not make ñ one of two.
  const std::vector<CountedWord> words{{"ñé", 1}, {"ñè", 1}, {"éñ", 1}, {"ñéx", 1}, {"ñéy", 1}};
  EXPECT_THAT(texts(seed_pieces(words, {})), ElementsAre("ñ", "é", "è", "y", "x", "ñé"));
}

}  // namespace
}  // namespace megatron
