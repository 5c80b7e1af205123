// Describes a tokenizer: its stages, its vocabulary and what that covers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct TokenizerConfig;

/// How the tokens of a vocabulary write their texts.
enum class TokenSpelling {
  plain,       ///< as they are; tiktoken's as bytes
  byte_level,  ///< bytes as characters of GPT-2's alphabet
  metaspace    ///< spaces as ▁, and bytes as <0x00>…<0xFF>
};

/// Returns the text (or the bytes) of a token; "Ġthe" and "▁the" both stand for " the".
std::string token_text(const std::string& token, TokenSpelling spelling);

struct TokenizerDescription {
  struct NamedToken {
    std::int32_t id;
    std::string token;
  };
  std::string file, type;        ///< the --tokenizer-type
  std::string model;             ///< such as "BPE"
  std::int64_t num_merges = -1;  ///< −1: the file has none
  std::string normalizer = "none", pre_tokenizer = "none", post_processor = "none",
              decoder = "none";  ///< in words
  TokenSpelling spelling = TokenSpelling::plain;
  std::int64_t num_tokens = 0, id_limit = 0;  ///< an id without a token is not counted
  std::int32_t eod = -1, bos = -1, pad = -1, unk = -1;
  std::vector<NamedToken> special_tokens, added_tokens;  ///< added ones that are not special
  std::int64_t covered_bytes = 0;      ///< of the 256 that are a token or a part of byte fallback
  std::int64_t single_characters = 0;  ///< tokens of one character
};

/// Describes the tokenizer of `config`, which `tokenizer` has opened.
TokenizerDescription describe_tokenizer(const TokenizerConfig& config, const Tokenizer& tokenizer);

/// Returns the merges in order, each as "left right"; none for tokenizers without a list of merges.
std::vector<std::string> merges_of(const TokenizerConfig& config);

}  // namespace megatron
