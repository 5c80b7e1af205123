// MinHash signatures beside the mathematics of Jaccard similarity and locality-sensitive hashing.
// tests/parity/cleaning_parity.py compares them with datasketch.
#include "megatron/datasets/cleaning/minhash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Two sets of `size` random hashes each, whose Jaccard similarity is shared / (2 size − shared).
std::array<std::vector<std::uint32_t>, 2> random_sets(std::mt19937& random, std::size_t size,
                                                      std::size_t shared) {
  std::array<std::vector<std::uint32_t>, 2> sets;
  for (std::size_t i = 0; i < size; ++i) {
    const auto value = static_cast<std::uint32_t>(random());
    sets[0].push_back(value);
    sets[1].push_back(i < shared ? value : static_cast<std::uint32_t>(random()));
  }
  return sets;
}

// Values of datasketch 2.0.0: MinHash(num_perm=4, seed=1, hashfunc=int), update(1), update(2).
TEST(MinHasher, GivesTheValuesOfDatasketch) {
  const MinHasher hasher({.bands = 2, .rows = 2, .seed = 1});
  const std::vector<std::uint32_t> set = {1, 2};
  EXPECT_THAT(hasher.signature_of(set),
              ElementsAre(3212330140u, 131247162u, 308645290u, 1412089388u));
}

// The share of equal minima has the mean s and the variance s(1 − s)/K.
TEST(MinHasher, EstimatesTheJaccardSimilarity) {
  constexpr int kPairs = 200, kPermutations = 128;
  const MinHasher hasher({.bands = 16, .rows = 8});
  std::mt19937 random(7);
  for (const std::size_t shared : {0, 100, 300, 380, 400}) {
    const double similarity = static_cast<double>(shared) / static_cast<double>(800 - shared);
    double sum = 0;
    for (int pair = 0; pair < kPairs; ++pair) {
      const auto sets = random_sets(random, 400, shared);
      sum += estimated_jaccard(hasher.signature_of(sets[0]), hasher.signature_of(sets[1]));
    }
    const double deviation = std::sqrt(similarity * (1 - similarity) / kPermutations / kPairs);
    EXPECT_NEAR(sum / kPairs, similarity, 4 * deviation + 1e-12) << shared;
  }
}

// Pairs of similarity s share a band with the probability 1 − (1 − s^r)^b. The permutations are
// fixed, so the pairs are drawn.
TEST(MinHasher, CollidesWithTheProbabilityOfItsBands) {
  constexpr int kPairs = 400;
  std::mt19937 random(11);
  for (const auto& [bands, rows] : {std::pair<int, int>{14, 8}, {4, 16}, {30, 2}}) {
    const MinHasher hasher({.bands = bands, .rows = rows});
    for (const std::size_t shared : {50, 150, 200, 250, 270}) {
      const double similarity = static_cast<double>(shared) / static_cast<double>(600 - shared);
      int collisions = 0;
      for (int pair = 0; pair < kPairs; ++pair) {
        const auto sets = random_sets(random, 300, shared);
        const auto a = hasher.band_keys(hasher.signature_of(sets[0]));
        const auto b = hasher.band_keys(hasher.signature_of(sets[1]));
        bool is_candidate = false;
        for (std::size_t i = 0; i < a.size(); ++i) is_candidate |= a[i] == b[i];
        collisions += is_candidate;
      }
      const double expected = 1 - std::pow(1 - std::pow(similarity, rows), bands);
      const double deviation = std::sqrt(expected * (1 - expected) / kPairs);
      EXPECT_NEAR(static_cast<double>(collisions) / kPairs, expected, 4 * deviation + 2.0 / kPairs)
          << bands << " x " << rows << ", " << shared;
    }
  }
}

TEST(ShingleHashes, AreOfWordsInLowerCase) {
  const auto hashes = shingle_hashes("The quick, BROWN fox\njumps", 3);
  EXPECT_THAT(hashes, SizeIs(3));
  EXPECT_EQ(hashes, shingle_hashes("the  quick brown - fox (jumps)!", 3));
  EXPECT_NE(hashes, shingle_hashes("quick the brown fox jumps", 3));
  EXPECT_EQ(shingle_hashes("\xc3\x84pfel", 1), shingle_hashes("\xc3\xa4PFEL", 1));
}

TEST(ShingleHashes, OfShortTextsAreOne) {
  EXPECT_THAT(shingle_hashes("one two", 5), SizeIs(1));
  EXPECT_NE(shingle_hashes("one two", 5), shingle_hashes("one", 5));
  EXPECT_THAT(shingle_hashes("?! --", 5), IsEmpty());
  EXPECT_THAT(shingle_hashes("", 5), IsEmpty());
}

// Han and kana are written without spaces: every character is a word.
TEST(ShingleHashes, TakeCharactersOfScriptsWithoutSpaces) {
  EXPECT_THAT(shingle_hashes("\xe6\x9d\xb1\xe4\xba\xac\xe3\x81\xae ab", 1), SizeIs(4));
  EXPECT_EQ(shingle_hashes("\xe6\x9d\xb1\xe4\xba\xac", 2),
            shingle_hashes("\xe6\x9d\xb1 \xe4\xba\xac", 2));
}

}  // namespace
}  // namespace megatron
