// Converts tokens to text as they are generated. A token may end in the middle of a character, and
// some tokenizers decode a token differently depending on the tokens before it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace megatron {

class IncrementalDetokenizer {
 public:
  using Decode = std::function<std::string(std::span<const std::int64_t> ids)>;
  /// The returned text does not include `prompt`, but the end of the prompt is decoded together
  /// with the first tokens, because SentencePiece drops a leading space.
  IncrementalDetokenizer(Decode decode, std::span<const std::int64_t> prompt);

  /// Returns the text that `id` completes; empty while a character is incomplete.
  std::string add(std::int64_t id);
  /// Returns the remaining text, including an incomplete character.
  std::string finish();

 private:
  std::string advance(bool flush_incomplete);

  Decode decode_;
  std::vector<std::int64_t> ids_;
  // ids_[prefix_offset_, read_offset_) are decoded again as context of new tokens.
  std::size_t prefix_offset_ = 0;
  std::size_t read_offset_ = 0;
};

}  // namespace megatron
