#include "megatron/tokenizers/byte_tokenizer.h"

#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens) const {
  std::string text;
  for (const std::int32_t id : ids)
    if (id >= 0 && id < 256) text.push_back(static_cast<char>(id));
  return text;
}

std::string ByteTokenizer::token(std::int32_t id) const {
  if (id == eod()) return kByteTokenizerEod;
  return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : "";
}

}  // namespace megatron
