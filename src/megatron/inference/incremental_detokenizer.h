// Tokens become text as they are drawn: a token may end in the middle of a character, and some
// tokenizers decode a token differently after others.
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
  /// `prompt` is not part of the text, but its end is decoded along with the first tokens
  /// (SentencePiece drops a leading space).
  IncrementalDetokenizer(Decode decode, std::span<const std::int64_t> prompt);

  /// The text that `id` completes; empty while a character is incomplete.
  std::string add(std::int64_t id);
  /// What is left, complete or not.
  std::string finish();

 private:
  std::string advance(bool flush_incomplete);

  Decode decode_;
  std::vector<std::int64_t> ids_;
  std::size_t prefix_offset_ =
      0;  // ids_[prefix_offset_, read_offset_) are decoded again before what is new
  std::size_t read_offset_ = 0;
};

}  // namespace megatron
