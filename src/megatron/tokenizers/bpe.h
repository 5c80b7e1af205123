// Byte-pair encoding of one word (Sennrich et al., 2016): merges the adjacent pair of lowest rank,
// leftmost first, until no pair can be merged.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron {

/// The fields of tokenizer.json's BPE model.
struct BpeOptions {
  std::optional<std::string> unk_token = {};
  std::string continuing_subword_prefix = {};  ///< prepended to every character but a word's first
  std::string end_of_word_suffix = {};         ///< appended to a word's last character
  bool fuse_unk = false;       ///< encodes a run of unknown characters as one unk_token
  bool byte_fallback = false;  ///< encodes an unknown character as byte tokens <0x00>…<0xFF>
  bool ignore_merges = false;  ///< encodes a word that is a token as that token, without merges
};

/// Immutable except for a lock-free cache. encode() is thread-safe.
class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;
  using MergeViews = HugePageVector<std::pair<std::string_view, std::string_view>>;

  /// Throws a UserError when the vocabulary lacks a token that a merge uses or makes, or the
  /// unk_token. `source` names file and field in errors.
  Bpe(Vocabulary vocabulary, const MergeViews& merges, BpeOptions options,
      const std::string& source);
  Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, const std::string& source)
      : Bpe(std::move(vocabulary), MergeViews(merges.begin(), merges.end()), std::move(options),
            source) {}
  ~Bpe();
  Bpe(Bpe&&) noexcept;

  /// Appends the ids of `word`, which must be valid UTF-8.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

  /// Appends what merges make of `word`, even if it is a token and the option ignore_merges is set.
  void merge(std::string_view word, std::vector<std::int32_t>& ids) const;
  /// Returns whether the characters of the byte alphabet are all tokens, and merges join them
  /// without prefix or suffix.
  bool merges_bytes_only() const;

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

  void merge(std::string_view word, std::int32_t whole, std::vector<std::int32_t>& ids) const;
  std::int32_t joined_id(std::string_view left, std::string_view right, std::int32_t last) const;
  void add_merges(const MergeViews& merges, const std::string& source);
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
  std::vector<std::int32_t> id_of_character_;  ///< for characters below kNumDirectCharacters when
                                               ///< neither prefix nor suffix is used
  std::vector<std::int32_t> id_of_byte_;       ///< ids of <0x00>…<0xFF>
  HugePageVector<MergeSlot> merges_;
  std::unique_ptr<std::atomic<WordCacheState>[]> word_cache_;  ///< by id: whether the token, taken
                                                               ///< as a word, encodes to itself
};

}  // namespace megatron
