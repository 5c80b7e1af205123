#include "megatron/inference/streaming_decoder.h"

#include <algorithm>
#include <utility>

#include "megatron/tokenizers/utf8.h"

namespace megatron {

namespace {

constexpr std::size_t kContextTokens = 6;  // of the prompt
constexpr std::size_t kMaxPending = 8;     // tokens held back: more than one character ever takes, so what stays invalid is shown as it is

bool ends_in_part_of_a_character(const std::string& text) {
  const auto replaced = replace_invalid_utf8(text);
  return (replaced ? std::string_view(*replaced) : std::string_view(text)).ends_with("\xEF\xBF\xBD");
}

}  // namespace

StreamingDecoder::StreamingDecoder(Decode decode, std::span<const std::int64_t> prompt)
    : decode_(std::move(decode)),
      ids_(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), kContextTokens)), prompt.end()),
      shown_(ids_.size()) {}

std::string StreamingDecoder::advance(bool even_incomplete) {
  const std::span<const std::int64_t> window = std::span(ids_).subspan(context_);
  const std::size_t old_size = decode_(window.first(shown_ - context_)).size();
  const std::string text = decode_(window);
  if (text.size() <= old_size || (!even_incomplete && ends_in_part_of_a_character(text))) return {};
  context_ = shown_;
  shown_ = ids_.size();
  return text.substr(old_size);
}

std::string StreamingDecoder::add(std::int64_t id) {
  ids_.push_back(id);
  return advance(ids_.size() - shown_ >= kMaxPending);
}

std::string StreamingDecoder::finish() { return shown_ < ids_.size() ? advance(true) : std::string{}; }

}  // namespace megatron
