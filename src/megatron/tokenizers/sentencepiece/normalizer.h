// SentencePiece's normalizer: rewrites characters by the model's map and spaces as ▁.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/sentencepiece/double_array.h"
#include "megatron/tokenizers/sentencepiece/model_file.h"

namespace megatron::sentencepiece {

/// U+2581, which stands for a space.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

/// Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer(const NormalizerSpec& spec, bool space_is_suffix, const std::string& source);

  /// User-defined pieces are not rewritten. `symbols` must outlive the normalizer.
  void keep_symbols(const hugging_face::TokenTrie* symbols);

  /// Returns the normalized form of `text`, which is valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  struct Prefix {
    std::string_view normalized;
    std::size_t length;
  };
  /// Returns whether characters that begin with this byte stay as they are, whatever follows. All
  /// bytes inside of characters count as such: the first one was asked before.
  bool in_plain_run(char c) const { return plain_runs_[static_cast<unsigned char>(c)]; }
  Prefix next(std::string_view text) const;
  void find_plain_characters();
  bool is_plain(std::string_view text) const {
    const auto first = static_cast<unsigned char>(text.front());
    return first < 0x80 && plain_[first] &&
           (text.size() == 1 || static_cast<unsigned char>(text[1]) < 0x80);
  }
  void append(std::string& out, std::string_view normalized) const;
  std::string_view space() const { return escape_ ? kSpaceSymbol : " "; }

  CharacterMap map_;
  const hugging_face::TokenTrie* symbols_ = nullptr;
  /// ASCII characters that stay as they are before another ASCII character.
  std::array<bool, 128> plain_{};
  std::array<bool, 256> plain_runs_{};
  bool add_dummy_prefix_, remove_extra_, escape_, space_is_suffix_;
};

}  // namespace megatron::sentencepiece
