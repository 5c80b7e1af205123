#include "megatron/tokenizers/training/word_counter.h"

#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"

namespace megatron {

WordCounter::WordCounter(const Json& normalizer, const Json& pre_tokenizer)
    : normalizer_(hugging_face::make_normalizer(JsonCursor(normalizer, "--normalizer"))),
      pre_tokenizer_(
          hugging_face::make_pre_tokenizer(JsonCursor(pre_tokenizer, "--pre-tokenizer"))),
      byte_level_words_(pre_tokenizer_ ? pre_tokenizer_->byte_level_words() : nullptr) {}

void WordCounter::count(std::string_view text, WordCounts& counts) const {
  std::string normalized;
  if (normalizer_) {
    normalized = normalizer_->apply(std::string(text));
    text = normalized;
  }
  if (text.empty()) return;
  const auto add = [&](std::string_view source, const Span& span) {
    counts.add(source.substr(span.begin, span.end - span.begin));
  };
  if (byte_level_words_ != nullptr)
    return byte_level_words_->split(text, [&](std::span<const Span> words) {
      for (const Span& span : words) add(text, span);
    });
  if (!pre_tokenizer_) return counts.add(text);
  hugging_face::PreTokenizedString words{std::string(text), {{0, text.size()}}, true};
  pre_tokenizer_->apply(words);
  for (const Span& span : words.spans) add(words.text, span);
}

WordCounts WordCounter::finish(WordCounts counts) const {
  if (byte_level_words_ == nullptr) return counts;
  WordCounts result;
  std::string characters;
  for (const CountedWord& word : counts.words()) {
    characters.clear();
    append_byte_level(characters, word.word);
    result.add(characters, word.count);
  }
  return result;
}

}  // namespace megatron
