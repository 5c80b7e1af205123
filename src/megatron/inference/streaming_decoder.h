// Tokens become text as they are drawn: a token may end in the middle of a character, and some tokenizers decode a token differently after others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace megatron {

class StreamingDecoder {
 public:
  using Decode = std::function<std::string(std::span<const std::int64_t> ids)>;
  /// `prompt` is not part of the text, but its end is decoded along with the first tokens (SentencePiece drops a leading space).
  StreamingDecoder(Decode decode, std::span<const std::int64_t> prompt);

  /// The text that `id` completes; empty while a character is incomplete.
  std::string add(std::int64_t id);
  /// What is left, complete or not.
  std::string finish();

 private:
  std::string advance(bool even_incomplete);

  Decode decode_;
  std::vector<std::int64_t> ids_;
  std::size_t context_ = 0;  // ids_[context_, shown_) are decoded again before what is new
  std::size_t shown_ = 0;
};

}  // namespace megatron
