// tokenizer.json's "pre_tokenizer": cuts text into the words that the model encodes one by one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

/// A text and its words in order; stretches between the words are dropped.
struct PreTokenizedString {
  std::string text;
  std::vector<Span> spans;       ///< none is empty
  bool starts_document = false;  ///< the first word begins where the original text begins
};

/// Immutable; apply is safe from many threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts every word further, or rewrites it.
  virtual void apply(PreTokenizedString& words) const = 0;
};

/// Nothing for null. `where` names file and field in errors.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& component, const std::string& where);

}  // namespace megatron::hugging_face
