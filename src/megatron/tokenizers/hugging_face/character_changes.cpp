#include "megatron/tokenizers/hugging_face/character_changes.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

struct Part {
  char32_t character;
  int combining_class;
  int change;
};

int combining_class(char32_t c) {
  if (is_unknown_to_normalizers(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

std::string utf8_of(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

/// Decomposes the text into `form`, NFD or NFKD, and orders its marks.
std::vector<Part> decompose(std::string_view text, NormalizationForm form) {
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
    const std::string whole = normalize_unicode(text.substr(begin, at - begin), form);
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

/// Returns the changes of a function that rewrites every character on its own.
template <class Rewrite>
CharacterChanges changes_of_each(std::string_view text, Rewrite rewrite) {
  CharacterChanges changes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    const std::string out = rewrite(text.substr(begin, at - begin));
    for (std::size_t i = 0; i < out.size();) {
      const int change = i == 0 ? 0 : 1;
      changes.push_back({next_code_point(out, i), change});
    }
  }
  return changes;
}

}  // namespace

CharacterChanges normalization_changes(std::string_view text, NormalizationForm form) {
  const bool composes = form == NormalizationForm::nfc || form == NormalizationForm::nfkc;
  const bool is_compatible = form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
  std::vector<Part> parts =
      decompose(text, is_compatible ? NormalizationForm::nfkd : NormalizationForm::nfd);
  if (composes) parts = recompose(parts);
  CharacterChanges changes;
  changes.reserve(parts.size());
  for (const Part& part : parts) changes.push_back({part.character, part.change});
  return changes;
}

CharacterChanges lowercase_changes(std::string_view text) {
  return changes_of_each(text, lowercase_unicode);
}

CharacterChanges byte_level_changes(std::string_view text) {
  return changes_of_each(text, [](std::string_view character) {
    std::string out;
    append_byte_level(out, character);
    return out;
  });
}

}  // namespace megatron::hugging_face
