#include "megatron/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/tokenizers/unicode_tables.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using unicode_tables::AssignedRange;
using unicode_tables::Range;

template <class T>
const T* find_range(std::span<const T> ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const T& range) { return value < range.first; });
  if (after == ranges.begin()) return nullptr;
  const T& range = *std::prev(after);
  return c <= range.last ? &range : nullptr;
}

/// Returns the two-letter general category in Unicode 16.
std::string_view category(char32_t c) {
  if (const AssignedRange* range = find_range(unicode_tables::assigned_since_14(), c))
    return {range->category, 2};
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
}

/// No form changes this vowel, and it is no part of a syllable. utf8proc 2.8 drops it when it
/// composes.
constexpr char32_t kBeforeTrailingConsonants = 0x11A7;

/// Returns whether NFC leaves `c` unchanged and never composes or reorders it with its neighbors.
/// This holds for most characters of most texts.
bool is_inert_in_nfc(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2060) ||
         (c >= 0x2460 && c < 0x27C0) || (c >= 0x3000 && c < 0x302A) ||
         (c >= 0x3030 && c < 0x3099) || (c >= 0x309B && c < 0x3100) ||
         (c >= 0x4E00 && c < 0xA000) || (c >= 0xAC00 && c < 0xD7A4) ||
         (c >= 0xFF01 && c < 0xFFF0) || (c >= 0x1F000 && c < 0x1FB00);
}

/// Returns whether the form leaves `c` unchanged, and never composes or reorders it with characters
/// before it.
bool is_inert(char32_t c, NormalizationForm form) {
  return c < 0x80 || (form == NormalizationForm::nfc && is_inert_in_nfc(c));
}

/// Writes texts in a normalization form. It keeps its memory from text to text.
class Normalization {
 public:
  explicit Normalization(NormalizationForm form)
      : composes_(form == NormalizationForm::nfc || form == NormalizationForm::nfkc),
        options_(UTF8PROC_STABLE | (composes_ ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE)) {
    if (form == NormalizationForm::nfkc || form == NormalizationForm::nfkd)
      options_ |= UTF8PROC_COMPAT;
  }

  void append(std::string_view text, std::string& out) {
    characters_.clear();
    marks_.clear();
    for (std::size_t i = 0; i < text.size();) decompose(next_code_point(text, i));
    append_marks();
    auto count = static_cast<utf8proc_ssize_t>(characters_.size());
    if (composes_)
      count = utf8proc_normalize_utf32(characters_.data(), count,
                                       static_cast<utf8proc_option_t>(options_));
    MEGATRON_CHECK(count >= 0, "Unicode normalization: ", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_utf8(out, static_cast<char32_t>(characters_[static_cast<std::size_t>(i)]));
  }

 private:
  struct Mark {
    utf8proc_int32_t character;
    utf8proc_propval_t combining_class;
  };

  void decompose(char32_t c) {
    std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18 characters
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), std::ssize(parts),
                                static_cast<utf8proc_option_t>(options_), &boundary);
    MEGATRON_CHECK(count >= 0 && count <= std::ssize(parts), "Unicode decomposition of U+",
                   std::hex, static_cast<std::uint32_t>(c));
    for (const utf8proc_int32_t part : std::span(parts).first(static_cast<std::size_t>(count))) {
      const auto combining_class = utf8proc_get_property(part)->combining_class;
      if (combining_class != 0) {
        marks_.push_back({part, combining_class});
      } else {
        append_marks();
        characters_.push_back(part);
      }
    }
  }

  /// Moves the marks after the last starter to the characters, in canonical order. utf8proc_map()
  /// takes the square of their number for that.
  void append_marks() {
    if (marks_.size() > 1)
      std::stable_sort(marks_.begin(), marks_.end(), [](const Mark& a, const Mark& b) {
        return a.combining_class < b.combining_class;
      });
    for (const Mark& mark : marks_) characters_.push_back(mark.character);
    marks_.clear();
  }

  bool composes_;
  int options_;
  std::vector<utf8proc_int32_t> characters_;
  std::vector<Mark> marks_;
};

/// Returns an older character with the properties of `range`. For 4-byte ranges it is also above
/// U+FFFF, so that the number of bytes stays the same.
char32_t assigned_equivalent(const AssignedRange& range) {
  struct Example {
    std::string_view category;
    char32_t three_bytes, four_bytes;
  };
  static constexpr Example kExamples[] = {
      {"Lu", 0x10A0, 0x10400}, {"Ll", 0x1D00, 0x10428}, {"Lm", 0x1D2C, 0x16B40},
      {"Lo", 0x0905, 0x10000}, {"Mn", 0x0901, 0x101FD}, {"Mc", 0x0903, 0x11000},
      {"Me", 0x20DD, 0x101FD}, {"Nd", 0x0966, 0x104A0}, {"Nl", 0x2160, 0x10140},
      {"No", 0x2460, 0x10107}, {"Pc", 0x203F, 0x10100}, {"Pd", 0x2010, 0x10EAD},
      {"Ps", 0x2045, 0x10100}, {"Pe", 0x2046, 0x10100}, {"Po", 0x2016, 0x10100},
      {"Sm", 0x2200, 0x1D6C1}, {"Sc", 0x20A0, 0x1E2FF}, {"Sk", 0x1FBD, 0x1F3FB},
      {"So", 0x2190, 0x10137}, {"Cf", 0x200B, 0x110BD},
  };
  const bool four = range.first >= 0x10000;
  if (range.han)
    return four ? (range.category[1] == 'o' ? 0x20000 : 0x16FF0)
                : (range.category[0] == 'L' ? 0x4E00 : 0x2E80);
  for (const Example& example : kExamples)
    if (example.category == range.category) return four ? example.four_bytes : example.three_bytes;
  MEGATRON_CHECK(false, "no example of category ", range.category);
  return 0;
}

/// Returns whether normalize_unicode() leaves the character alone, because it is newer than the
/// Unicode of the package's normalizers.
bool is_unknown_to_normalizers(char32_t c) {
  return c >= 0x7FD && find_range(unicode_tables::unknown_to_normalizers(), c) != nullptr;
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalizationForm form) {
  std::string out;
  out.reserve(text.size());
  Normalization normalization(form);
  std::size_t done = 0;   // the end of what `out` holds
  std::size_t start = 0;  // where the last character begins that can change with the ones after it
  bool changes = false;   // whether a character after `done` is not inert
  const auto write = [&](std::size_t end) {
    if (changes) {
      normalization.append(text.substr(done, end - done), out);
    } else {
      out.append(text, done, end - done);
    }
    done = end;
    changes = false;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, i);
    if (is_inert(c, form)) {
      if (changes) write(begin);
      start = begin;
    } else if (is_unknown_to_normalizers(c) || c == kBeforeTrailingConsonants) {
      write(begin);
      out.append(text, begin, i - begin);
      done = start = i;
    } else if (!changes) {
      write(start);
      changes = true;
    }
  }
  write(text.size());
  return out;
}

std::string lowercase_unicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto newer = unicode_tables::lowercase_since_14();
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    const auto found =
        std::lower_bound(newer.begin(), newer.end(), c,
                         [](const auto& pair, char32_t value) { return pair.upper < value; });
    if (c == 0x130) {
      append_utf8(out, U'i');
      append_utf8(out, 0x307);
    } else if (found != newer.end() && found->upper == c) {
      append_utf8(out, found->lower);
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || c == 0x20;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
  return category(c)[0] == 'L';
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= U'0' && c <= U'9';
  return category(c)[0] == 'N' || find_range(unicode_tables::numeric_since_16(), c) != nullptr;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
           (c >= 0x7B && c <= 0x7E);
  return find_range(unicode_tables::punctuation(), c) != nullptr;
}

bool is_combining_mark(char32_t c) {
  return c >= 0x300 && find_range(unicode_tables::combining_marks(), c) != nullptr;
}

bool is_word(char32_t c) {
  const std::string_view name = category(c);
  if (name[0] == 'L' || name[0] == 'M' || name == "Nd" || name == "Nl" || name == "Pc") return true;
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return within(0x200C, 0x200D) || within(0x24B6, 0x24E9) || within(0x1F130, 0x1F149) ||
         within(0x1F150, 0x1F169) || within(0x1F170, 0x1F189);
}

std::size_t end_of_leading_space(std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t next = begin; begin < text.size(); begin = next)
    if (!is_white_space(next_code_point(text, next))) break;
  return begin;
}

std::size_t start_of_trailing_space(std::string_view text) {
  std::size_t end = text.size();
  for (std::size_t previous = end; end > 0; end = previous)
    if (!is_white_space(previous_code_point(text, previous))) break;
  return end;
}

bool is_bert_control(char32_t c) {
  return find_range(unicode_tables::bert_controls(), c) != nullptr;
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && find_range(unicode_tables::nonspacing_marks(), c) != nullptr;
}

int script_number(char32_t c) {
  const unicode_tables::ScriptRange* range = find_range(unicode_tables::scripts(), c);
  return range == nullptr ? 0 : range->script;
}

std::size_t grapheme_end(std::string_view text, std::size_t position) {
  utf8proc_int32_t state = 0;
  auto previous = static_cast<utf8proc_int32_t>(next_code_point(text, position));
  while (position < text.size()) {
    std::size_t next = position;
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, next));
    if (utf8proc_grapheme_break_stateful(previous, c, &state)) break;
    previous = c;
    position = next;
  }
  return position;
}

std::string_view replace_unassigned_characters(std::string_view text, std::string& storage) {
  bool copied = false;
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, i);
    const AssignedRange* range = find_range(unicode_tables::assigned_since_14(), c);
    if (range == nullptr && c != 0x180E) continue;
    if (!copied) storage.assign(text);
    copied = true;
    std::string known;
    append_utf8(known, range == nullptr
                           ? 0x200B
                           : assigned_equivalent(*range));  // PCRE2 treats U+180E as white space
    MEGATRON_CHECK(known.size() == i - begin, "stand-in of ", known.size(), " bytes instead of ",
                   i - begin, " for U+", std::hex, static_cast<std::uint32_t>(c));
    storage.replace(begin, known.size(), known);
  }
  return copied ? std::string_view(storage) : text;
}

}  // namespace megatron
