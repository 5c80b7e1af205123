// tokenizer.json's "decoder": puts the strings of tokens together again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json.h"

namespace megatron::hugging_face {

/// Immutable; safe from many threads.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// The text is the concatenation of what the last decoder returns.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

/// Nothing for null (tokens are then joined by spaces). `where` names file and field in errors.
std::unique_ptr<Decoder> make_decoder(const Json& component, const std::string& where);

}  // namespace megatron::hugging_face
