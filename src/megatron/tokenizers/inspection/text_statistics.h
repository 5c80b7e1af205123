// What a tokenizer makes of a text: how many tokens, and of which words many.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/inspection/tokenizer_description.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/training/word_counts.h"

namespace megatron {

/// Sums over texts. Words are what stands between white space.
struct TextStatistics {
  std::int64_t bytes = 0, characters = 0, words = 0, tokens = 0, unknown_tokens = 0;
  WordCounts distinct_words = {};

  /// Adds a text of valid UTF-8 with its ids.
  void add(std::string_view text, const std::vector<std::int32_t>& ids, std::int32_t unk);
  void merge(const TextStatistics& other);
  double bytes_per_token() const;
  double tokens_per_word() const;  ///< also called fertility
};

/// A word of a text and the number of its tokens, when it stands behind a space.
struct LongWord {
  std::string word;
  std::int64_t tokens = 0, count = 0;
};

/// The words of most tokens, and the share of words that are divided.
struct WordStatistics {
  std::vector<LongWord> longest;
  double divided_share = 0;  ///< of all words, those of more than one token
};

/// Encodes every distinct word. Of words of equally many tokens, the more frequent come first.
WordStatistics word_statistics(const WordCounts& words, const Tokenizer& tokenizer,
                               TokenSpelling spelling, std::size_t num_longest);

}  // namespace megatron
