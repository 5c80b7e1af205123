// How normalizers change the characters of a text, as the `tokenizers` package counts.
#pragma once

#include <string_view>

#include "megatron/tokenizers/hugging_face/aligned_text.h"
#include "megatron/tokenizers/unicode.h"

namespace megatron::hugging_face {

/// Returns the characters of the text in a normalization form. A character that was composed takes
/// the places of all its parts.
CharacterChanges normalization_changes(std::string_view text, NormalizationForm form);

/// Returns the characters of lowercase_unicode().
CharacterChanges lowercase_changes(std::string_view text);

/// Returns the characters of append_byte_level().
CharacterChanges byte_level_changes(std::string_view text);

}  // namespace megatron::hugging_face
