// Character properties and normalization with utf8proc. The results equal those of the Hugging Face
// `tokenizers` package 0.23, which uses Unicode 16, and about Unicode 10 in its normalizers. All
// strings are valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

enum class NormalizationForm { nfc, nfd, nfkc, nfkd };

/// Returns `text` in the given Unicode normalization form.
std::string normalize_unicode(std::string_view text, NormalizationForm form);

/// Maps every character to its full lower-case mapping, without context (no final sigma).
std::string lowercase_unicode(std::string_view text);

bool is_white_space(char32_t c);     ///< the property White_Space
bool is_letter(char32_t c);          ///< categories L*
bool is_numeric(char32_t c);         ///< categories Nd, Nl, No
bool is_punctuation(char32_t c);     ///< categories P*, and every ASCII punctuation or symbol
bool is_combining_mark(char32_t c);  ///< categories M*
bool is_word(char32_t c);            ///< \w of UTS #18: letters, marks, digits, connectors, joiners

/// Returns the size of the white space at the beginning of a text.
std::size_t end_of_leading_space(std::string_view text);
/// Returns where the white space at the end of a text begins.
std::size_t start_of_trailing_space(std::string_view text);

/// Returns whether BertNormalizer's clean_text removes the character: controls and U+FFFD.
bool is_bert_control(char32_t c);
/// Returns whether BertNormalizer's strip_accents removes the character.
bool is_nonspacing_mark(char32_t c);
/// Returns a number that characters of the same script share, as UnicodeScripts sees them; 0 for
/// the space and unassigned characters, which belong to any script.
int script_number(char32_t c);
/// Returns the end of the extended grapheme cluster at `position` of valid UTF-8.
std::size_t grapheme_end(std::string_view text, std::size_t position);

/// Replaces each character that a newer Unicode version assigned by an older one of the same
/// category, script class and UTF-8 length, so that any matcher finds the same offsets. Copies to
/// `storage` only when needed; the result is a view of `text` or `storage`.
std::string_view replace_unassigned_characters(std::string_view text, std::string& storage);

}  // namespace megatron
