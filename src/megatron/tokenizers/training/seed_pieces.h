// The pieces with which the training of a Unigram model begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/training/word_counts.h"

namespace megatron {

/// A piece and its score.
using ScoredPiece = std::pair<std::string, double>;

struct SeedOptions {
  std::int64_t seed_size = 1000000;    ///< largest number of pieces
  std::int64_t max_piece_length = 16;  ///< in characters
};

/// Returns all characters of the words, by falling counts, then the substrings of two characters or
/// more that at least two different characters (or ends of words) follow, by falling product of
/// their occurrences in distinct words and their lengths. Scores are logarithms of shares. Of equal
/// ones, the last in the order of code points come first. The words are valid UTF-8.
std::vector<ScoredPiece> seed_pieces(std::span<const CountedWord> words,
                                     const SeedOptions& options);

}  // namespace megatron
