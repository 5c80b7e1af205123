#include "megatron/tokenizers/chat/chat_encoder.h"

#include <string>

#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (reads_tokenizer_json(tokenizer.name()) || tokenizer.name() == "NullTokenizer") return;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string name = tokenizer.decode(std::vector{id}, SpecialTokens::keep);
    if (!name.empty()) names_.add(name, id);
  }
}

std::vector<std::int32_t> ChatEncoder::encode(std::string_view text) const {
  if (names_.empty()) return tokenizer_.encode_fragment(text);
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    const auto [span, id] = names_.find(text, at);
    if (span.begin > at) {
      const auto part = tokenizer_.encode_fragment(text.substr(at, span.begin - at));
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (id >= 0) ids.push_back(id);
    at = span.end;
  }
  return ids;
}

}  // namespace megatron
