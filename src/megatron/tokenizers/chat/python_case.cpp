#include <utf8proc.h>

#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

constexpr char32_t kSharpS = 0xDF;  // of several characters in upper case; others stay as they are

void append_upper(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "Ss";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

std::string_view category(char32_t c) {
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  return utf8proc_isupper(code) != 0 || utf8proc_islower(code) != 0 || category(c) == "Lt";
}

bool is_case_ignorable(char32_t c) {
  const std::string_view name = category(c);
  return name == "Mn" || name == "Me" || name == "Cf" || name == "Lm" || name == "Sk" ||
         std::u32string_view(
             U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13"
             U"\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
}

/// Returns whether the sigma at [begin, end) ends a word (Final_Sigma of SpecialCasing.txt).
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  char32_t c = 0;
  bool found = false;
  while (begin > 0 && is_case_ignorable(c = previous_code_point(text, begin))) c = 0;
  found = c != 0 && is_cased(c);
  if (!found) return false;
  c = 0;
  while (end < text.size() && is_case_ignorable(c = next_code_point(text, end))) c = 0;
  return c == 0 || !is_cased(c);
}

void append_lower(std::string& out, std::string_view text, std::size_t begin, std::size_t end) {
  constexpr std::string_view kSigma = "\u03A3";
  const std::string_view character = text.substr(begin, end - begin);
  if (character == kSigma) {
    out += is_final_sigma(text, begin, end) ? "\u03C2" : "\u03C3";
  } else {
    out += lowercase_unicode(character);
  }
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_of_class(char32_t c, TextClass which) {
  const std::string_view name = category(c);
  switch (which) {
    case TextClass::alpha:
      return name[0] == 'L';
    case TextClass::decimal:
      return name == "Nd";
    case TextClass::digit:
      return name == "Nd" || (name == "No" && ((c >= 0xB2 && c <= 0xB3) || c == 0xB9 ||
                                               (c >= 0x2070 && c <= 0x2089)));
    case TextClass::space:
      return is_space(c);
    default:
      return name[0] == 'L' || name[0] == 'N';
  }
}

/// str.isupper() and str.islower(): some character has a case, and none the other.
bool has_only_case(std::string_view text, bool upper_case) {
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (upper_case ? is_lower(c) || category(c) == "Lt" : is_upper(c) || category(c) == "Lt")
      return false;
    found = found || (upper_case ? is_upper(c) : is_lower(c));
  }
  return found;
}

}  // namespace

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    next_code_point(text, end);
    append_lower(out, text, begin, end);
  }
  return out;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const char32_t c = next_code_point(text, end);
    if (after_cased) {
      append_lower(out, text, begin, end);
    } else {
      append_title(out, c);
    }
    after_cased = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const char32_t c = next_code_point(text, end);
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, end);
    }
  }
  return out;
}

bool is_class(std::string_view text, TextClass which) {
  if (which == TextClass::upper || which == TextClass::lower)
    return has_only_case(text, which == TextClass::upper);
  for (std::size_t at = 0; at < text.size();)
    if (!is_of_class(next_code_point(text, at), which)) return false;
  return !text.empty();
}

std::string text_repr(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const char32_t c = next_code_point(text, end);
    const auto append_hex = [&](char letter, int digits) {
      out += '\\';
      out += letter;
      for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[c >> shift & 15];
    };
    const std::string_view name = category(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c != ' ' && (name[0] == 'C' || name[0] == 'Z')) {
      c < 0x100 ? append_hex('x', 2) : c < 0x10000 ? append_hex('u', 4) : append_hex('U', 8);
    } else {
      out += text.substr(begin, end - begin);
    }
  }
  return out += quote;
}

}  // namespace megatron::chat
