// The "decoder" of tokenizer.json, which converts token strings to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// Immutable and thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Returns strings whose concatenation, after the last decoder, is the text.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

/// Returns null for a null component; tokens are then joined by spaces.
std::unique_ptr<Decoder> make_decoder(const JsonCursor& component);

}  // namespace megatron::hugging_face
