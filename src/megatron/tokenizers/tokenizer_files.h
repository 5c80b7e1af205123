// The files of a tokenizer under the names that a Hugging Face folder gives them, so that they can
// travel with weights.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "megatron/config/settings.h"

namespace megatron {

/// The names of tokenizer files in a Hugging Face folder.
std::span<const char* const> tokenizer_file_names();

/// Where GPT-2's two files lie.
struct Gpt2Files {
  std::filesystem::path vocab, merges;
};
/// UserError when the flags name only one of them.
Gpt2Files gpt2_files(const TokenizerConfig& config);

/// Name → content of the tokenizer's own files (tokenizer.json, or vocab.json and merges.txt) and
/// of those beside them that say which tokens are special. Empty for tokenizers without files and
/// for settings that name none. UserError when a file cannot be read.
std::map<std::string, std::string> tokenizer_files(const TokenizerConfig& config);

/// What byte_tokenizer_json() calls the eod of ByteTokenizer.
inline constexpr const char* kByteTokenizerEod = "<|endoftext|>";

/// A tokenizer.json that gives the ids of ByteTokenizer.
std::string byte_tokenizer_json();

}  // namespace megatron
