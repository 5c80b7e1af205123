// The "decoder" of tokenizer.json, which converts token strings to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// Returns strings whose concatenation, after the last decoder, is the text. Thread-safe.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string> tokens)>;

/// Returns an empty function for a null component; tokens are then joined by spaces.
Decoder make_decoder(const JsonCursor& component);

}  // namespace megatron::hugging_face
