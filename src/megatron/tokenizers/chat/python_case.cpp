#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

/// Characters whose upper case or title case is several characters (Unicode's SpecialCasing.txt).
struct SpecialCase {
  char32_t character;
  const char8_t *upper, *title;
};
constexpr SpecialCase kSpecialCases[] = {{0x00DF, u8"SS", u8"Ss"},
                                         {0x0149, u8"\u02BCN", u8"\u02BCN"},
                                         {0x01F0, u8"J\u030C", u8"J\u030C"},
                                         {0x0390, u8"\u0399\u0308\u0301", u8"\u0399\u0308\u0301"},
                                         {0x03B0, u8"\u03A5\u0308\u0301", u8"\u03A5\u0308\u0301"},
                                         {0x0587, u8"\u0535\u0552", u8"\u0535\u0582"},
                                         {0x1E96, u8"H\u0331", u8"H\u0331"},
                                         {0x1E97, u8"T\u0308", u8"T\u0308"},
                                         {0x1E98, u8"W\u030A", u8"W\u030A"},
                                         {0x1E99, u8"Y\u030A", u8"Y\u030A"},
                                         {0x1E9A, u8"A\u02BE", u8"A\u02BE"},
                                         {0x1F50, u8"\u03A5\u0313", u8"\u03A5\u0313"},
                                         {0x1F52, u8"\u03A5\u0313\u0300", u8"\u03A5\u0313\u0300"},
                                         {0x1F54, u8"\u03A5\u0313\u0301", u8"\u03A5\u0313\u0301"},
                                         {0x1F56, u8"\u03A5\u0313\u0342", u8"\u03A5\u0313\u0342"},
                                         {0x1F80, u8"\u1F08\u0399", u8"\u1F88"},
                                         {0x1F81, u8"\u1F09\u0399", u8"\u1F89"},
                                         {0x1F82, u8"\u1F0A\u0399", u8"\u1F8A"},
                                         {0x1F83, u8"\u1F0B\u0399", u8"\u1F8B"},
                                         {0x1F84, u8"\u1F0C\u0399", u8"\u1F8C"},
                                         {0x1F85, u8"\u1F0D\u0399", u8"\u1F8D"},
                                         {0x1F86, u8"\u1F0E\u0399", u8"\u1F8E"},
                                         {0x1F87, u8"\u1F0F\u0399", u8"\u1F8F"},
                                         {0x1F88, u8"\u1F08\u0399", u8"\u1F88"},
                                         {0x1F89, u8"\u1F09\u0399", u8"\u1F89"},
                                         {0x1F8A, u8"\u1F0A\u0399", u8"\u1F8A"},
                                         {0x1F8B, u8"\u1F0B\u0399", u8"\u1F8B"},
                                         {0x1F8C, u8"\u1F0C\u0399", u8"\u1F8C"},
                                         {0x1F8D, u8"\u1F0D\u0399", u8"\u1F8D"},
                                         {0x1F8E, u8"\u1F0E\u0399", u8"\u1F8E"},
                                         {0x1F8F, u8"\u1F0F\u0399", u8"\u1F8F"},
                                         {0x1F90, u8"\u1F28\u0399", u8"\u1F98"},
                                         {0x1F91, u8"\u1F29\u0399", u8"\u1F99"},
                                         {0x1F92, u8"\u1F2A\u0399", u8"\u1F9A"},
                                         {0x1F93, u8"\u1F2B\u0399", u8"\u1F9B"},
                                         {0x1F94, u8"\u1F2C\u0399", u8"\u1F9C"},
                                         {0x1F95, u8"\u1F2D\u0399", u8"\u1F9D"},
                                         {0x1F96, u8"\u1F2E\u0399", u8"\u1F9E"},
                                         {0x1F97, u8"\u1F2F\u0399", u8"\u1F9F"},
                                         {0x1F98, u8"\u1F28\u0399", u8"\u1F98"},
                                         {0x1F99, u8"\u1F29\u0399", u8"\u1F99"},
                                         {0x1F9A, u8"\u1F2A\u0399", u8"\u1F9A"},
                                         {0x1F9B, u8"\u1F2B\u0399", u8"\u1F9B"},
                                         {0x1F9C, u8"\u1F2C\u0399", u8"\u1F9C"},
                                         {0x1F9D, u8"\u1F2D\u0399", u8"\u1F9D"},
                                         {0x1F9E, u8"\u1F2E\u0399", u8"\u1F9E"},
                                         {0x1F9F, u8"\u1F2F\u0399", u8"\u1F9F"},
                                         {0x1FA0, u8"\u1F68\u0399", u8"\u1FA8"},
                                         {0x1FA1, u8"\u1F69\u0399", u8"\u1FA9"},
                                         {0x1FA2, u8"\u1F6A\u0399", u8"\u1FAA"},
                                         {0x1FA3, u8"\u1F6B\u0399", u8"\u1FAB"},
                                         {0x1FA4, u8"\u1F6C\u0399", u8"\u1FAC"},
                                         {0x1FA5, u8"\u1F6D\u0399", u8"\u1FAD"},
                                         {0x1FA6, u8"\u1F6E\u0399", u8"\u1FAE"},
                                         {0x1FA7, u8"\u1F6F\u0399", u8"\u1FAF"},
                                         {0x1FA8, u8"\u1F68\u0399", u8"\u1FA8"},
                                         {0x1FA9, u8"\u1F69\u0399", u8"\u1FA9"},
                                         {0x1FAA, u8"\u1F6A\u0399", u8"\u1FAA"},
                                         {0x1FAB, u8"\u1F6B\u0399", u8"\u1FAB"},
                                         {0x1FAC, u8"\u1F6C\u0399", u8"\u1FAC"},
                                         {0x1FAD, u8"\u1F6D\u0399", u8"\u1FAD"},
                                         {0x1FAE, u8"\u1F6E\u0399", u8"\u1FAE"},
                                         {0x1FAF, u8"\u1F6F\u0399", u8"\u1FAF"},
                                         {0x1FB2, u8"\u1FBA\u0399", u8"\u1FBA\u0345"},
                                         {0x1FB3, u8"\u0391\u0399", u8"\u1FBC"},
                                         {0x1FB4, u8"\u0386\u0399", u8"\u0386\u0345"},
                                         {0x1FB6, u8"\u0391\u0342", u8"\u0391\u0342"},
                                         {0x1FB7, u8"\u0391\u0342\u0399", u8"\u0391\u0342\u0345"},
                                         {0x1FBC, u8"\u0391\u0399", u8"\u1FBC"},
                                         {0x1FC2, u8"\u1FCA\u0399", u8"\u1FCA\u0345"},
                                         {0x1FC3, u8"\u0397\u0399", u8"\u1FCC"},
                                         {0x1FC4, u8"\u0389\u0399", u8"\u0389\u0345"},
                                         {0x1FC6, u8"\u0397\u0342", u8"\u0397\u0342"},
                                         {0x1FC7, u8"\u0397\u0342\u0399", u8"\u0397\u0342\u0345"},
                                         {0x1FCC, u8"\u0397\u0399", u8"\u1FCC"},
                                         {0x1FD2, u8"\u0399\u0308\u0300", u8"\u0399\u0308\u0300"},
                                         {0x1FD3, u8"\u0399\u0308\u0301", u8"\u0399\u0308\u0301"},
                                         {0x1FD6, u8"\u0399\u0342", u8"\u0399\u0342"},
                                         {0x1FD7, u8"\u0399\u0308\u0342", u8"\u0399\u0308\u0342"},
                                         {0x1FE2, u8"\u03A5\u0308\u0300", u8"\u03A5\u0308\u0300"},
                                         {0x1FE3, u8"\u03A5\u0308\u0301", u8"\u03A5\u0308\u0301"},
                                         {0x1FE4, u8"\u03A1\u0313", u8"\u03A1\u0313"},
                                         {0x1FE6, u8"\u03A5\u0342", u8"\u03A5\u0342"},
                                         {0x1FE7, u8"\u03A5\u0308\u0342", u8"\u03A5\u0308\u0342"},
                                         {0x1FF2, u8"\u1FFA\u0399", u8"\u1FFA\u0345"},
                                         {0x1FF3, u8"\u03A9\u0399", u8"\u1FFC"},
                                         {0x1FF4, u8"\u038F\u0399", u8"\u038F\u0345"},
                                         {0x1FF6, u8"\u03A9\u0342", u8"\u03A9\u0342"},
                                         {0x1FF7, u8"\u03A9\u0342\u0399", u8"\u03A9\u0342\u0345"},
                                         {0x1FFC, u8"\u03A9\u0399", u8"\u1FFC"},
                                         {0xFB00, u8"FF", u8"Ff"},
                                         {0xFB01, u8"FI", u8"Fi"},
                                         {0xFB02, u8"FL", u8"Fl"},
                                         {0xFB03, u8"FFI", u8"Ffi"},
                                         {0xFB04, u8"FFL", u8"Ffl"},
                                         {0xFB05, u8"ST", u8"St"},
                                         {0xFB06, u8"ST", u8"St"},
                                         {0xFB13, u8"\u0544\u0546", u8"\u0544\u0576"},
                                         {0xFB14, u8"\u0544\u0535", u8"\u0544\u0565"},
                                         {0xFB15, u8"\u0544\u053B", u8"\u0544\u056B"},
                                         {0xFB16, u8"\u054E\u0546", u8"\u054E\u0576"},
                                         {0xFB17, u8"\u0544\u053D", u8"\u0544\u056D"}};

const SpecialCase* special_case(char32_t c) {
  const auto* found = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), c,
      [](const SpecialCase& entry, char32_t key) { return entry.character < key; });
  return found != std::end(kSpecialCases) && found->character == c ? found : nullptr;
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += reinterpret_cast<const char*>(special->upper);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += reinterpret_cast<const char*>(special->title);
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
    case TextClass::numeric:
      return name[0] == 'N';
    case TextClass::alnum:
      return name[0] == 'L' || name[0] == 'N';
    case TextClass::space:
      return is_space(c);
    default:
      return c < 0x80;
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

bool is_titled(std::string_view text) {
  bool found = false, after_cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool starts = is_upper(c) || category(c) == "Lt";
    if (starts ? after_cased : is_lower(c) && !after_cased) return false;
    after_cased = starts || is_lower(c);
    found = found || after_cased;
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

std::string casefold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    std::array<utf8proc_int32_t, 4> folded{};  // the longest has 3 characters
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto count =
        utf8proc_decompose_char(c, folded.data(), std::ssize(folded), UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_utf8(out, static_cast<char32_t>(folded[static_cast<std::size_t>(i)]));
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

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const char32_t c = next_code_point(text, end);
    if (is_upper(c)) {
      append_lower(out, text, begin, end);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

bool is_class(std::string_view text, TextClass which) {
  if (which == TextClass::upper || which == TextClass::lower)
    return has_only_case(text, which == TextClass::upper);
  if (which == TextClass::title) return is_titled(text);
  for (std::size_t at = 0; at < text.size();)
    if (!is_of_class(next_code_point(text, at), which)) return false;
  return which == TextClass::ascii || !text.empty();
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
