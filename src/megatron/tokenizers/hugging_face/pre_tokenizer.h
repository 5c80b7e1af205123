// The "pre_tokenizer" of tokenizer.json, which splits text into words. The model encodes each word
// separately.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/word_splitter.h"

namespace megatron::hugging_face {

/// A text and its words in order. Text between the words is dropped.
struct PreTokenizedString {
  std::string text;
  std::vector<Span> spans;  ///< the words; none is empty
  std::size_t start = 0;    ///< bytes of `text` that come from the original text's first character
};

/// Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Splits or rewrites every word.
  virtual void apply(PreTokenizedString& words) const = 0;
  /// Returns whether apply() reads PreTokenizedString::start.
  virtual bool reads_start() const { return false; }
  /// Returns the splitter when apply() only splits a text with it, leaving nothing out, and then
  /// writes every byte as a character of the byte alphabet; otherwise null.
  virtual const WordSplitter* byte_level_words() const { return nullptr; }
};

/// Returns null for a null component.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonCursor& component);

}  // namespace megatron::hugging_face
