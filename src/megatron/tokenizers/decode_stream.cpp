#include "megatron/tokenizers/decode_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kContext = 16;      // ids before the stream that are decoded again
constexpr std::size_t kLongWindow = 128;  // ids after which incomplete text is not decoded whole
constexpr std::size_t kLongestWindow = 4096;  // ids after which spaces are not

/// Returns the end of the text that later bytes cannot change. An incomplete character has at most
/// three bytes, and stands in the text as they are or as a U+FFFD for each.
std::size_t final_end(std::string_view text) {
  if (replace_invalid_utf8(text)) {
    for (std::size_t size = 1; size <= std::min<std::size_t>(3, text.size()); ++size) {
      const auto lead = static_cast<unsigned char>(text[text.size() - size]);
      if (lead < 0x80) break;
      if (lead < 0xC0) continue;
      const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      return size < length && lead < 0xF5 ? text.size() - size : text.size();
    }
    return text.size();
  }
  for (int i = 0; i < 3 && text.ends_with(kReplacement); ++i)
    text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

DecodeStream::DecodeStream(const Tokenizer& tokenizer, std::span<const std::int32_t> context,
                           SpecialTokens special)
    : tokenizer_(tokenizer), special_(special) {
  const auto last = context.last(std::min(context.size(), kContext));
  window_.assign(last.begin(), last.end());
  fresh_ = window_.size();
  shown_ = final_end(decode());
}

std::string DecodeStream::show(const std::string& text, std::size_t end) {
  if (end <= shown_) return {};
  const std::size_t begin = std::exchange(shown_, end);
  return text.substr(begin, end - begin);
}

/// Drops the context of ids that are shown whole: they become the context of the next. A context of
/// spaces alone would not do, because decoders drop those that begin a text.
void DecodeStream::shorten_window(const std::string& text) {
  if (shown_ < text.size() && window_.size() < kLongWindow) return;
  const std::size_t kept = shown_ < text.size() ? kContext : window_.size() - fresh_;
  const std::vector<std::int32_t> last(window_.end() - static_cast<std::ptrdiff_t>(kept),
                                       window_.end());
  const std::string rest = tokenizer_.decode(last, special_);
  if (rest.find_first_not_of(' ') == std::string::npos && window_.size() < kLongestWindow) return;
  const std::size_t hidden = text.size() - shown_;
  window_ = last;
  fresh_ = window_.size();
  shown_ = rest.size() - std::min(hidden, rest.size());
}

std::string DecodeStream::add(std::int32_t id) {
  window_.push_back(id);
  const bool is_skipped = special_ == SpecialTokens::skip && tokenizer_.is_special(id);
  if (!is_skipped) awaits_more_ = tokenizer_.awaits_more(id);
  if (awaits_more_) return {};
  const std::string text = decode();
  const std::string shown = show(text, final_end(text));
  if (!shown.empty()) shorten_window(text);
  return shown;
}

std::string DecodeStream::finish() {
  const std::string text = decode();
  return show(text, text.size());
}

}  // namespace megatron
