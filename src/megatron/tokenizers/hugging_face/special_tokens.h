// Reads which tokens begin, end and pad a text, and which stands for unknown text. They are not in
// tokenizer.json but in tokenizer_config.json or special_tokens_map.json beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace megatron::hugging_face {

/// Ids of special tokens; −1 where there is none.
struct SpecialTokenIds {
  std::int32_t bos = -1, eos = -1, pad = -1, unk = -1;
};

/// Reads the files beside tokenizer.json in `folder`. Without an eos_token in them, eos is the
/// first of the usual names that exists. `find` returns a token's id or −1. Throws UserErrors with
/// file and field for wrong types and for an eos_token that is not in the vocabulary.
SpecialTokenIds read_special_tokens(const std::filesystem::path& folder,
                                    const std::function<std::int32_t(const std::string&)>& find);

}  // namespace megatron::hugging_face
