// The "added_tokens" of tokenizer.json: strings that are always one token. They are matched either
// before or after normalization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/hugging_face/normalizer.h"
#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::hugging_face {

/// Immutable and thread-safe.
class AddedTokens {
 public:
  /// A range of the text with the token's id; −1 for plain text.
  using Segment = TokenTrie::Match;

  AddedTokens() = default;
  /// Throws UserErrors for wrong types, empty contents, and ids that are out of range, duplicate,
  /// or differ from those the `tokenizers` package assigns.
  /// `normalizer` may be null.
  AddedTokens(const JsonCursor& list, const Vocabulary& vocabulary, const Normalizer* normalizer);

  /// Adds a special token as add_special_tokens() of the package: a known one keeps its id, another
  /// gets the next. Throws a UserError for an empty text.
  void add_special(const std::string& content, const Vocabulary& vocabulary);

  /// Splits raw text at the tokens with normalized = false.
  std::vector<Segment> split_raw(std::string_view text) const { return split(text, raw_); }
  /// Splits normalized text at the tokens with normalized = true.
  std::vector<Segment> split_normalized(std::string_view text) const {
    return split(text, normalized_);
  }

  /// Returns the id of the token with this content; −1 when absent.
  std::int32_t find(const std::string& content) const;
  /// Returns the content that the decoder receives for `id`, normalized if the token is; null when
  /// `id` is not an added token.
  const std::string* decoded(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  /// Returns the largest id + 1.
  std::int32_t id_limit() const { return id_limit_; }

 private:
  struct Token {
    std::string decoded;
    bool special = false, single_word = false, lstrip = false, rstrip = false;
  };
  void add(const JsonCursor& entry, const Vocabulary& vocabulary, const Normalizer* normalizer);
  std::int32_t checked_id(const JsonCursor& entry, const std::string& content,
                          const Vocabulary& vocabulary);
  std::vector<Segment> split(std::string_view text, const TokenTrie& trie) const;

  std::unordered_map<std::string, std::int32_t> id_of_content_;
  std::unordered_map<std::int32_t, Token> tokens_;
  TokenTrie raw_, normalized_;
  std::int32_t next_id_ = 0, id_limit_ = 0;
};

}  // namespace megatron::hugging_face
