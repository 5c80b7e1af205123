#include "megatron/tokenizers/hugging_face/nfc_alignment.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

/// A character of the result and how it changes the number of characters: 1 for one that is new, −n
/// for one that replaces n others besides its own.
struct Part {
  char32_t character;
  int combining_class;
  int change;
};

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

std::string utf8_of(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

/// Decomposes the text and orders its marks.
std::vector<Part> decompose(std::string_view text) {
  std::vector<Part> parts;
  std::size_t marks = 0;  // where the marks after the last starter begin
  const auto order = [&] {
    std::stable_sort(
        parts.begin() + static_cast<std::ptrdiff_t>(marks), parts.end(),
        [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    const std::string whole =
        normalize_unicode(std::string(text.substr(begin, at - begin)), NormalizationForm::nfd);
    for (std::size_t i = 0; i < whole.size();) {
      const int change = i == 0 ? 0 : 1;
      const char32_t c = next_code_point(whole, i);
      const int ccc = combining_class(c);
      if (ccc == 0) {
        order();
        marks = parts.size() + 1;
      }
      parts.push_back({c, ccc, change});
    }
  }
  marks = std::min(marks, parts.size());
  order();
  return parts;
}

/// Returns the character that two compose to.
std::optional<char32_t> compose(char32_t first, char32_t second) {
  const std::string text =
      normalize_unicode(utf8_of(first) + utf8_of(second), NormalizationForm::nfc);
  std::size_t at = 0;
  const char32_t c = next_code_point(text, at);
  return at == text.size() ? std::optional(c) : std::nullopt;
}

std::vector<Part> recompose(const std::vector<Part>& parts) {
  std::vector<Part> out, marks;
  std::optional<Part> starter;
  const auto flush = [&] {
    if (starter) out.push_back(*starter);
    out.insert(out.end(), marks.begin(), marks.end());
    marks.clear();
  };
  for (const Part& part : parts) {
    if (!starter && part.combining_class != 0) {
      out.push_back(part);
      continue;
    }
    const bool is_blocked = !marks.empty() && marks.back().combining_class >= part.combining_class;
    if (starter && !is_blocked) {
      if (const auto composed = compose(starter->character, part.character)) {
        starter = Part{*composed, 0, starter->change + part.change - 1};
        continue;
      }
    }
    if (part.combining_class != 0) {
      marks.push_back(part);
    } else {
      flush();
      starter = part;
    }
  }
  flush();
  return out;
}

}  // namespace

AlignedText align_nfc(std::string_view text) {
  std::vector<Span> originals;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    originals.push_back({begin, at});
  }
  AlignedText result;
  std::size_t next = 0;  // the next original character
  for (const Part& part : recompose(decompose(text))) {
    const std::size_t place = part.change > 0 ? next - 1 : next;  // wraps before the first
    const Span from = place < originals.size() ? originals[place] : Span{0, 0};
    if (part.change <= 0) next += static_cast<std::size_t>(1 - part.change);
    const std::size_t begin = result.text.size();
    append_utf8(result.text, part.character);
    result.places.resize(result.places.size() + result.text.size() - begin, from);
  }
  return result;
}

}  // namespace megatron::hugging_face
