// The expected values are sums over all segmentations, written out by hand.
#include "megatron/tokenizers/training/unigram_lattice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Pieces with these probabilities; number 0 stands for unknown characters.
UnigramPieces model_of(const std::vector<std::pair<std::string, double>>& probabilities) {
  std::vector<ScoredPiece> pieces{{"<UNK>", kNaN}};
  for (const auto& [piece, probability] : probabilities)
    pieces.emplace_back(piece, std::log(probability));
  return UnigramPieces(std::move(pieces));
}

TEST(UnigramLattice, WeighsSegmentationsByTheirProbabilities) {
  const UnigramPieces model = model_of({{"a", 0.5}, {"b", 0.2}, {"ab", 0.3}});
  UnigramLattice lattice;
  std::vector<double> expected(4);
  lattice.add_expected(model, {"ab", 2}, expected);
  // a b: 0.1, ab: 0.3
  EXPECT_NEAR(expected[1], 2 * 0.25, 1e-12);
  EXPECT_NEAR(expected[2], 2 * 0.25, 1e-12);
  EXPECT_NEAR(expected[3], 2 * 0.75, 1e-12);
  lattice.add_expected(model, {"aba", 1}, expected);
  // a b a: 0.05, ab a: 0.15
  EXPECT_NEAR(expected[1], 0.5 + 2 * 0.25 + 0.75, 1e-12);
}

TEST(UnigramLattice, FindsTheTwoBest) {
  const UnigramPieces model = model_of({{"a", 0.5}, {"b", 0.2}, {"ab", 0.3}, {"abb", 0.001}});
  UnigramLattice lattice;
  // ab b: 0.06, a b b: 0.02, abb: 0.001
  EXPECT_THAT(lattice.best(model, "abb"), UnorderedElementsAre(2, 3));
  const auto [best, second] = lattice.two_best(model, "abb");
  EXPECT_THAT(best, UnorderedElementsAre(2, 3));
  EXPECT_THAT(second, UnorderedElementsAre(1, 2, 2));
  EXPECT_THAT(lattice.two_best(model, "a").second, IsEmpty());
  const UnigramPieces parts = model_of({{"a", 0.5}, {"b", 0.4}, {"ab", 0.1}});
  EXPECT_THAT(lattice.two_best(parts, "ab").second, ElementsAre(3));  // a b: 0.2, ab: 0.1
}

TEST(UnigramLattice, TakesUnknownCharactersAsPieceZero) {
  const UnigramPieces model = model_of({{"a", 0.5}, {"éa", 0.25}});
  UnigramLattice lattice;
  EXPECT_THAT(lattice.best(model, "aé"), UnorderedElementsAre(1, 0));
  EXPECT_THAT(lattice.two_best(model, "éa").second, UnorderedElementsAre(0, 1));
}

TEST(UnigramPieces, LeavesOutPiecesWithoutAScore) {
  UnigramPieces model = model_of({{"a", 0.5}, {"b", 0.2}, {"ab", 0.3}});
  model.update({kNaN, std::log(0.6), kNaN, std::log(0.4)});
  ASSERT_EQ(model.size(), 3u);
  EXPECT_EQ(model.pieces()[2].first, "ab");
  EXPECT_DOUBLE_EQ(model.min_score(), std::log(0.4));
  UnigramLattice lattice;
  EXPECT_THAT(lattice.best(model, "ab"), ElementsAre(2));
  EXPECT_THAT(lattice.best(model, "b"), ElementsAre(0));
}

}  // namespace
}  // namespace megatron
