// Which tokens begin, end and pad a text: not in tokenizer.json but in tokenizer_config.json or
// special_tokens_map.json beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace megatron::hugging_face {

/// Ids; −1 for none.
struct SpecialTokenIds {
  std::int32_t bos = -1, eos = -1, pad = -1;
};

/// Reads the files beside tokenizer.json in `folder`; without them eos is the first of the usual
/// names that exists. `find` gives a token's id or −1. UserErrors name file and field: wrong types,
/// an eos_token that is no token.
SpecialTokenIds read_special_tokens(const std::filesystem::path& folder,
                                    const std::function<std::int32_t(const std::string&)>& find);

}  // namespace megatron::hugging_face
