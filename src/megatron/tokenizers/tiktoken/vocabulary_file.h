// Reads the three files of vocabularies for tiktoken: lines of "base64 rank", Mistral's tekken.json
// and the JSON list of Megatron's TikTokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "megatron/tokenizers/byte_pair_ranks.h"

namespace megatron {
struct TokenizerConfig;
}

namespace megatron::tiktoken {

struct SpecialToken {
  std::string text;
  std::int32_t id;
};

struct VocabularyFile {
  BytePairRanks ranks;
  std::string pattern;
  std::vector<SpecialToken> special_tokens;
  std::string eod, bos, pad;  ///< texts of special tokens; "": none
  /// A special token's text in a document becomes that token, as in Megatron's TikTokenizer.
  bool encodes_special_tokens = false;
  /// Special tokens separate texts that are decoded one by one, as in mistral-common.
  bool decodes_between_special_tokens = false;
};

/// Reads the file that `config` names. UserErrors name the file and the line or field.
VocabularyFile read_vocabulary_file(const std::filesystem::path& path,
                                    const TokenizerConfig& config);

}  // namespace megatron::tiktoken
