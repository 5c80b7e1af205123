// All segmentations of a word into pieces of a Unigram model (Kudo, 2018), and sums over them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/piece_trie.h"
#include "megatron/tokenizers/training/seed_pieces.h"

namespace megatron {

/// A model in training: pieces by number, of which 0 stands for unknown characters.
class UnigramPieces {
 public:
  explicit UnigramPieces(std::vector<ScoredPiece> pieces);

  /// Gives pieces other scores and leaves out those without one, which are in no segmentation
  /// afterwards. `scores` has a value for every piece; NaN leaves it out, but not piece 0.
  void update(const std::vector<double>& scores);
  const std::vector<ScoredPiece>& pieces() const { return pieces_; }
  std::size_t size() const { return pieces_.size(); }
  double score(std::int32_t piece) const { return pieces_[static_cast<std::size_t>(piece)].second; }
  double min_score() const { return min_score_; }

  /// Calls found(end, piece, score) for every piece at byte `at` of a word, the shortest first;
  /// last for an unknown character when no piece is that character.
  template <class Found>
  void for_each_at(std::string_view word, std::size_t at, std::size_t after,
                   const Found& found) const {
    bool has_single = false;
    trie_.for_each_prefix(word.substr(at), [&](std::size_t length, std::int32_t number) {
      const std::int32_t piece = piece_of_number_[static_cast<std::size_t>(number)];
      if (piece < 0) return;
      has_single = has_single || at + length == after;
      found(at + length, piece, score(piece));
    });
    if (!has_single) found(after, 0, min_score_ - kUnknownPenalty);
  }

 private:
  static constexpr double kUnknownPenalty = 10;
  void find_min_score();

  std::vector<ScoredPiece> pieces_;
  PieceTrie trie_;
  std::vector<std::int32_t> piece_of_number_;  ///< by the trie's numbers; −1: left out
  double min_score_ = 0;
};

/// The lattice of one word. It keeps its memory from word to word. Not thread-safe.
class UnigramLattice {
 public:
  /// Adds to expected[piece] how often the piece is in a segmentation of the word, times `count`,
  /// with segmentations in proportion to their probabilities.
  void add_expected(const UnigramPieces& model, const CountedWord& word,
                    std::vector<double>& expected);
  /// Returns the pieces of the most probable segmentation, in no order.
  std::span<const std::int32_t> best(const UnigramPieces& model, std::string_view word);
  /// Returns the pieces of the two most probable segmentations; the second is empty when there is
  /// only one.
  std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> two_best(
      const UnigramPieces& model, std::string_view word);

 private:
  struct Node {
    std::uint32_t begin, end;
    std::int32_t piece;
    double score;
  };
  struct Path {
    double score;
    std::uint32_t begin;
    std::int32_t piece;
    std::uint8_t rank;  ///< of the path that this one continues
    bool is_set = false;
  };
  void fill(const UnigramPieces& model, std::string_view word);

  std::vector<Node> nodes_;  ///< by their beginnings
  std::vector<double> alpha_, beta_;
  std::vector<bool> is_set_;
  std::vector<Path> first_, second_;
  std::vector<std::int32_t> pieces_;
};

}  // namespace megatron
