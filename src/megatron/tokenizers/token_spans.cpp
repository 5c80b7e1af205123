#include "megatron/tokenizers/token_spans.h"

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

std::vector<TokenSpan> Tokenizer::encode_with_spans(std::string_view) const {
  throw UserError({"the places of tokens are not known for this kind of tokenizer",
                   std::string(name()),
                   "use tokenizer.json, a SentencePiece model or a tiktoken file"});
}

void widen_to_characters(std::string_view text, std::vector<TokenSpan>& spans) {
  const auto is_inside_character = [text](std::size_t at) {
    return at < text.size() && is_continuation_byte(text[at]);
  };
  for (TokenSpan& span : spans) {
    while (is_inside_character(span.begin)) --span.begin;
    while (is_inside_character(span.end)) ++span.end;
  }
}

}  // namespace megatron
