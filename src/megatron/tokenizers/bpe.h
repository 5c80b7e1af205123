// Byte-pair encoding of one word (Sennrich et al., 2016): merge the neighbouring pair of lowest
// rank, leftmost first, until none is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/vocabulary.h"

namespace megatron {

/// Fields of tokenizer.json's BPE model.
struct BpeOptions {
  std::optional<std::string> unk_token = {};
  std::string continuing_subword_prefix =
      {};                               ///< put before every character of a word but the first
  std::string end_of_word_suffix = {};  ///< put after a word's last character
  bool fuse_unk = false;                ///< one unk_token for a run of unknown characters
  bool byte_fallback = false;  ///< an unknown character becomes its bytes' tokens <0x00>…<0xFF>
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
};

/// Immutable but for a lock-free cache; encode is safe from many threads.
class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  /// `source` names file and field in errors: merges of or to tokens that the vocabulary lacks, an
  /// unk_token that it lacks.
  Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, const std::string& source);
  ~Bpe();
  Bpe(Bpe&&) noexcept;

  /// Appends the ids of `word` (valid UTF-8).
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    std::uint32_t rank = ~0u;
    std::int32_t id = -1;
  };
  struct MergeSlot {
    std::uint64_t pair = ~0ull;
    Merge merge;
  };
  enum class WordCacheState : std::uint8_t { unknown, one_token, several };

  void add_merges(const Merges& merges, const std::string& source);
  Merge find_merge(std::int32_t left, std::int32_t right) const;
  std::int32_t initial_id(std::string_view character, bool first, bool last) const;
  void append_initial(std::string_view word, std::vector<std::int32_t>& ids) const;
  bool append_byte_fallback(std::string_view character, bool first, bool last,
                            std::vector<std::int32_t>& ids) const;
  void merge_short(std::vector<std::int32_t>& ids, std::size_t start) const;
  void merge_long(std::vector<std::int32_t>& ids, std::size_t start) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::int32_t unk_id_ = -1;
  std::vector<std::int32_t> id_of_character_;  ///< of characters below kNumDirectCharacters, when
                                               ///< neither prefix nor suffix is in use
  std::vector<std::int32_t> id_of_byte_;       ///< of <0x00>…<0xFF>
  std::vector<MergeSlot> merges_;
  std::unique_ptr<std::atomic<WordCacheState>[]>
      word_cache_;  ///< by id: does the token, taken as a word, encode to itself
};

}  // namespace megatron
