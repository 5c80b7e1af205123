#include "megatron/inference/incremental_detokenizer.h"

#include <algorithm>
#include <utility>

#include "megatron/tokenizers/utf8.h"

namespace megatron {

namespace {

constexpr std::size_t kPrefixTokens = 6;  // prompt tokens decoded as context
// Maximum number of tokens held back. No character takes more, so bytes that are still invalid then
// are output unchanged.
constexpr std::size_t kMaxPendingTokens = 8;

bool ends_with_incomplete_utf8(const std::string& text) {
  const auto replaced = replace_invalid_utf8(text);
  return (replaced ? std::string_view(*replaced) : std::string_view(text))
      .ends_with("\xEF\xBF\xBD");
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(Decode decode, std::span<const std::int64_t> prompt)
    : decode_(std::move(decode)),
      ids_(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), kPrefixTokens)),
           prompt.end()),
      read_offset_(ids_.size()) {}

std::string IncrementalDetokenizer::advance(bool flush_incomplete) {
  const std::span<const std::int64_t> window = std::span(ids_).subspan(prefix_offset_);
  const std::size_t old_size = decode_(window.first(read_offset_ - prefix_offset_)).size();
  const std::string text = decode_(window);
  if (text.size() <= old_size || (!flush_incomplete && ends_with_incomplete_utf8(text))) return {};
  prefix_offset_ = read_offset_;
  read_offset_ = ids_.size();
  return text.substr(old_size);
}

std::string IncrementalDetokenizer::add(std::int64_t id) {
  ids_.push_back(id);
  return advance(ids_.size() - read_offset_ >= kMaxPendingTokens);
}

std::string IncrementalDetokenizer::finish() {
  return read_offset_ < ids_.size() ? advance(true) : std::string{};
}

}  // namespace megatron
