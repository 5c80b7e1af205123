// Where the characters of a text in normalization form C come from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

/// A normalized text, and for each of its bytes the place of a character in the original text.
struct AlignedText {
  std::string text;
  std::vector<Span> places;
};

/// Returns the text in NFC with the places that the `tokenizers` package gives: a character that
/// was composed comes from the first of its parts.
AlignedText align_nfc(std::string_view text);

}  // namespace megatron::hugging_face
