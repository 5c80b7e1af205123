// The expected merges are worked out by hand from the counts of pairs.
#include "megatron/tokenizers/training/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Merge = std::pair<std::uint32_t, std::uint32_t>;

TEST(BpeTrainer, MergesTheMostFrequentPairAndOfEqualsTheSmallest) {
  // a b c: ids 0 1 2. ab 3, bc 3, ca 1: ab has the smaller ids.
  const std::vector<CountedWord> words{{"abc", 3}, {"ca", 1}};
  const TrainedBpe trained = train_bpe(words, {.vocab_size = 5});
  EXPECT_THAT(trained.tokens, ElementsAre("a", "b", "c", "ab", "abc"));
  EXPECT_THAT(trained.merges, ElementsAre(Merge(0, 1), Merge(3, 2)));
}

TEST(BpeTrainer, MergesRunsFromTheLeft) {
  // aaaaa becomes aa aa a; aa aa occurs twice, aa a twice: the smaller pair is (aa, a)
  const std::vector<CountedWord> words{{"aaaaa", 2}};
  const TrainedBpe trained = train_bpe(words, {.vocab_size = 4});
  EXPECT_THAT(trained.tokens, ElementsAre("a", "aa", "aaa", "aaaaa"));
  EXPECT_THAT(trained.merges, ElementsAre(Merge(0, 0), Merge(1, 0), Merge(1, 2)));
}

TEST(BpeTrainer, StopsBelowTheLeastFrequency) {
  const std::vector<CountedWord> words{{"ab", 2}, {"cd", 1}};
  EXPECT_THAT(train_bpe(words, {.vocab_size = 100, .min_frequency = 2}).tokens,
              ElementsAre("a", "b", "c", "d", "ab"));
  EXPECT_THAT(train_bpe(words, {.vocab_size = 100, .min_frequency = 3}).merges, IsEmpty());
}

TEST(BpeTrainer, LeavesOutTheRarestCharacters) {
  // a 3, b 3, c 1, d 2; x is in the alphabet in any case
  const std::vector<CountedWord> words{{"abd", 2}, {"acb", 1}};
  const TrainedBpe trained =
      train_bpe(words, {.vocab_size = 5, .initial_alphabet = {'x'}, .limit_alphabet = 3});
  EXPECT_THAT(trained.tokens, ElementsAre("a", "b", "x", "ab"));  // acb is read as ab
}

TEST(BpeTrainer, PutsAPrefixBeforePartsAfterTheFirst) {
  const std::vector<CountedWord> words{{"aba", 1}};
  const TrainedBpe trained = train_bpe(
      words, {.vocab_size = 6, .special_tokens = {"[U]"}, .continuing_subword_prefix = "##"});
  EXPECT_THAT(trained.tokens, ElementsAre("[U]", "a", "b", "##a", "##b", "ab"));
}

TEST(BpeTrainer, GivesAMergeTheIdOfAKnownToken) {
  const std::vector<CountedWord> words{{"ab", 2}};
  const TrainedBpe trained = train_bpe(words, {.vocab_size = 10, .special_tokens = {"ab", "<e>"}});
  EXPECT_THAT(trained.tokens, ElementsAre("ab", "<e>", "a", "b"));
  EXPECT_THAT(trained.merges, ElementsAre(Merge(2, 3)));
}

}  // namespace
}  // namespace megatron
