// Tables of differences between the `tokenizers` package and our libraries. The package uses
// Unicode 16 in regular expressions and about Unicode 10 in normalizers. The values are generated
// by tests/tokenizers/make_unicode_tables.py.
#pragma once

#include <cstdint>
#include <span>

namespace megatron::unicode_tables {

struct Range {
  char32_t first, last;
};

/// Code points whose category differs between Unicode 16 and Unicode 14 (PCRE2 10.42). Unicode 14
/// does not assign most of them.
struct AssignedRange {
  char32_t first, last;
  char category[3];  ///< general category, "Lu", "Nd" …
  bool han;          ///< script Han
};

struct ScriptRange {
  char32_t first, last;
  std::uint16_t script;  ///< a number above 0 that equal scripts share
};

struct LowercasePair {
  char32_t upper, lower;
};

std::span<const AssignedRange> assigned_since_14();   ///< sorted
std::span<const Range> unknown_to_normalizers();      ///< sorted; normalizers keep these unchanged
std::span<const Range> combining_marks();             ///< sorted; StripAccents removes these
std::span<const Range> punctuation();                 ///< sorted; Punctuation splits at these
std::span<const Range> numeric_since_16();            ///< sorted; numbers of Unicode 17, for Digits
std::span<const Range> bert_controls();               ///< sorted; BertNormalizer removes these
std::span<const Range> nonspacing_marks();            ///< sorted; BertNormalizer's accents
std::span<const ScriptRange> scripts();               ///< sorted; UnicodeScripts splits between
std::span<const LowercasePair> lowercase_since_14();  ///< sorted; mappings for Lowercase

}  // namespace megatron::unicode_tables
