// What tokenizers ask about characters, answered as the Hugging Face `tokenizers` package 0.23
// answers (Unicode 16; its normalizers know about Unicode 10). utf8proc behind one header. All
// strings are valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

enum class NormalizationForm { nfc, nfd, nfkc, nfkd };

/// `text` in the given Unicode normalization form.
std::string normalize_unicode(std::string_view text, NormalizationForm form);

/// Every character's full lower-case mapping, without context (no final sigma).
std::string lowercase_unicode(std::string_view text);

bool is_white_space(char32_t c);     ///< the property White_Space
bool is_numeric(char32_t c);         ///< categories Nd, Nl, No
bool is_punctuation(char32_t c);     ///< categories P*, and every ASCII punctuation or symbol
bool is_combining_mark(char32_t c);  ///< categories M*
bool is_word(char32_t c);            ///< \w of UTS #18: letters, marks, digits, connectors, joiners

/// `text` with each character that newer Unicode versions assigned replaced by an older one of the
/// same category, script class and UTF-8 length, so that a matcher of any version finds the same
/// offsets. Copies into `storage` only when needed; the result views either.
std::string_view replace_unassigned_characters(std::string_view text, std::string& storage);

}  // namespace megatron
