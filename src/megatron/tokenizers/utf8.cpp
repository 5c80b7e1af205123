#include "megatron/tokenizers/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace megatron {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t length;
  bool valid;
};

/// Returns the length of the well-formed sequence at `p`, or of the maximal part that begins one
/// (Unicode, table 3-7).
Sequence scan(const unsigned char* p, const unsigned char* end) {
  const unsigned char lead = *p;
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (p + i == end || p[i] < low || p[i] > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

const unsigned char* skip_ascii(const unsigned char* p, const unsigned char* end) {
  for (; end - p >= 8; p += 8) {
    std::uint64_t block;
    std::memcpy(&block, p, 8);
    if ((block & 0x8080808080808080u) != 0) break;
  }
  while (p != end && *p < 0x80) ++p;
  return p;
}

}  // namespace

std::optional<std::string> replace_invalid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  const auto* copied = p;
  std::optional<std::string> out;
  while ((p = skip_ascii(p, end)) != end) {
    // Most other characters have three bytes; these leads take any continuations.
    const auto continues = [](unsigned char byte) { return (byte & 0xC0) == 0x80; };
    while (end - p >= 3 && *p > 0xE0 && *p < 0xED && continues(p[1]) && continues(p[2])) p += 3;
    if (p == end) break;
    const Sequence sequence = scan(p, end);
    if (!sequence.valid) {
      if (!out) out.emplace();
      out->append(reinterpret_cast<const char*>(copied), static_cast<std::size_t>(p - copied))
          .append(kReplacement);
      copied = p + sequence.length;
    }
    p += sequence.length;
  }
  if (out)
    out->append(reinterpret_cast<const char*>(copied), static_cast<std::size_t>(end - copied));
  return out;
}

std::size_t count_characters(std::string_view text) {
  return text.size() -
         static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation_byte));
}

std::string_view first_characters(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) next_code_point(text, end);
  return text.substr(0, end);
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!is_continuation_byte(text[i])) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

}  // namespace megatron
