// The "normalizer" of tokenizer.json, which rewrites text before it is split.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
  /// Returns how many characters at the start of apply(text) have the place of the first `count`
  /// characters of `text`, as the `tokenizers` package counts.
  virtual std::size_t count_start(std::string_view text, std::size_t count) const;
};

/// Returns null for a null component.
std::unique_ptr<Normalizer> make_normalizer(const JsonCursor& component);

}  // namespace megatron::hugging_face
