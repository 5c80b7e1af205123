// Helps tokenizers to tell the places of tokens in the text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Widens the spans to whole characters of valid UTF-8.
void widen_to_characters(std::string_view text, std::vector<TokenSpan>& spans);

}  // namespace megatron
