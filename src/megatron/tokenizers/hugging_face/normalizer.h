// The "normalizer" of tokenizer.json, which rewrites text before it is split.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/aligned_text.h"

namespace megatron::hugging_face {

/// Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
  /// Rewrites the text as apply() does and keeps account of the places.
  virtual void align(AlignedText& text) const = 0;
};

/// Returns null for a null component.
std::unique_ptr<Normalizer> make_normalizer(const JsonCursor& component);

}  // namespace megatron::hugging_face
