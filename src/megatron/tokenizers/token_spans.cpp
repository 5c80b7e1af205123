#include "megatron/tokenizers/token_spans.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

std::vector<TokenSpan> Tokenizer::encode_with_spans(std::string_view) const {
  throw UserError({"the places of tokens are not known for this kind of tokenizer",
                   std::string(name()), "use a byte-level tokenizer.json or a tiktoken file"});
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!is_inside_character(text, i)) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

void widen_to_characters(std::string_view text, std::vector<TokenSpan>& spans) {
  for (TokenSpan& span : spans) {
    while (is_inside_character(text, span.begin)) --span.begin;
    while (is_inside_character(text, span.end)) ++span.end;
  }
}

}  // namespace megatron
