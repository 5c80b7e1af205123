#include "megatron/tokenizers/chat/python_text.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/words.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

template <class Drops>
std::string_view strip_if(std::string_view text, Side side, const Drops& drops) {
  std::size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    std::size_t next = begin;
    if (!drops(next_code_point(text, next))) break;
    begin = next;
  }
  while (side != Side::left && begin < end) {
    std::size_t before = end;
    if (!drops(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t byte = 0;
  for (; index > 0 && byte < text.size(); --index) {
    ++byte;
    while (byte < text.size() && is_continuation_byte(text[byte])) ++byte;
  }
  return byte;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    next_code_point(text, end);
    characters.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return characters;
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip(std::string_view text, std::string_view set, Side side) {
  std::vector<char32_t> characters;
  for (std::size_t at = 0; at < set.size();) characters.push_back(next_code_point(set, at));
  return strip_if(text, side, [&](char32_t c) {
    return std::find(characters.begin(), characters.end(), c) != characters.end();
  });
}

std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t limit,
                                             bool from_right) {
  std::vector<std::string_view> words;
  std::string_view rest = strip(text, from_right ? Side::right : Side::left);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(words.size()) == limit) {
      words.push_back(rest);
      break;
    }
    std::size_t edge = from_right ? rest.size() : 0;
    while (from_right ? edge > 0 : edge < rest.size()) {
      std::size_t next = edge;
      if (is_space(from_right ? previous_code_point(rest, next) : next_code_point(rest, next)))
        break;
      edge = next;
    }
    words.push_back(from_right ? rest.substr(edge) : rest.substr(0, edge));
    rest = from_right ? strip(rest.substr(0, edge), Side::right)
                      : strip(rest.substr(edge), Side::left);
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

std::size_t find_part(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found =
      ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_part(std::string_view text, std::string_view part) {
  const std::size_t at = find_part(reversed(text), reversed(part));
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t limit, bool from_right) {
  const std::string backwards = from_right ? reversed(text) : std::string();
  const std::string last_first = from_right ? reversed(separator) : std::string();
  const std::string_view searched = from_right ? backwards : text,
                         wanted = from_right ? last_first : separator;
  const auto part = [&](std::size_t begin, std::size_t end) {
    return from_right ? text.substr(text.size() - end, end - begin)
                      : text.substr(begin, end - begin);
  };
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = find_part(searched, wanted, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(part(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(part(begin, text.size()));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin, next = begin;
    for (; end < text.size(); end = next) {
      const char32_t c = next_code_point(text, next);
      if (!is_line_end(c)) continue;
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      break;
    }
    lines.push_back(text.substr(begin, (keep_ends ? next : end) - begin));
    begin = next;
  }
  return lines;
}

std::string replace_all(std::string_view text, std::string_view old, std::string_view by,
                        std::int64_t limit) {
  std::string out;
  std::size_t begin = 0;
  for (std::int64_t i = 0; limit < 0 || i < limit; ++i) {
    if (old.empty()) {  // `by` goes before each character and at the end
      out += by;
      if (begin == text.size()) return out;
      const std::size_t next = begin + byte_of_character(text.substr(begin), 1);
      out += text.substr(begin, next - begin);
      begin = next;
      continue;
    }
    const std::size_t at = find_part(text, old, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += by;
    begin = at + old.size();
  }
  return out += text.substr(begin);
}

std::int64_t count_parts(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<std::int64_t>(count_characters(text)) + 1;
  std::int64_t count = 0;
  for (std::size_t at = find_part(text, part); at != std::string_view::npos;
       at = find_part(text, part, at + part.size()))
    ++count;
  return count;
}

std::string escape_html(std::string_view text) {
  return escaped_text(
      text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}});
}

}  // namespace megatron::chat
