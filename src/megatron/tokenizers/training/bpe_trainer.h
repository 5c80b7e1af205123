// Trains the merges of byte-pair encoding (Sennrich et al., 2016) as BpeTrainer of the `tokenizers`
// package does, ties included. WordPiece is trained by the same merges, with a prefix for the parts
// of a word after the first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/training/word_counts.h"

namespace megatron {

/// The settings of BpeTrainer, under its names.
struct BpeTrainerOptions {
  std::int64_t vocab_size = 30000;
  std::int64_t min_frequency = 0;  ///< least number of times that a merged pair occurs
  std::vector<std::string> special_tokens = {};
  std::vector<char32_t> initial_alphabet = {};  ///< characters in the vocabulary in any case
  /// Largest number of characters; the rarest are left out, of equal ones the last.
  std::optional<std::int64_t> limit_alphabet = {};
  std::string continuing_subword_prefix = {};         ///< of the parts of a word after the first
  std::optional<std::int64_t> max_token_length = {};  ///< in characters
  /// Receives the tokens made so far, several times a second.
  std::function<void(std::int64_t tokens)> progress = {};
};

/// The vocabulary, by id, and the merges as pairs of ids, the first one first.
struct TrainedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;
};

/// Trains on distinct words of valid UTF-8. Their order does not matter. Parts with a prefix that
/// are no special tokens get their ids in the order of their characters; the package takes a random
/// order. Throws a UserError when the special tokens and the alphabet exceed the size of the
/// vocabulary.
TrainedBpe train_bpe(std::span<const CountedWord> words, const BpeTrainerOptions& options);

}  // namespace megatron
