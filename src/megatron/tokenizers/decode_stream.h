// Converts ids to text as they come, such as the tokens that a model generates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Gives the text of each id as soon as no later id can change it: a character is never cut, and
/// the texts together are decode() of all ids. The tokenizer must outlive the object.
class DecodeStream {
 public:
  /// The ids of `context` come before the stream. Their text is not given again, but the first ids
  /// are decoded with it, because decoders drop a space that begins a text.
  explicit DecodeStream(const Tokenizer& tokenizer, std::span<const std::int32_t> context = {},
                        SpecialTokens special = SpecialTokens::skip);

  /// Returns the text that `id` completes; empty while a character is incomplete.
  std::string add(std::int32_t id);
  /// Returns the rest of the text, which may be an incomplete character.
  std::string finish();

 private:
  std::string decode() const { return tokenizer_.decode(window_, special_); }
  std::string show(const std::string& text, std::size_t end);
  void shorten_window(const std::string& text);

  const Tokenizer& tokenizer_;
  SpecialTokens special_;
  /// The last ids: those before `fresh_` are the context in which the others are decoded.
  std::vector<std::int32_t> window_;
  std::size_t fresh_ = 0;
  std::size_t shown_ = 0;  ///< bytes of decode(window_) that were given
  bool awaits_more_ = false;
};

}  // namespace megatron
