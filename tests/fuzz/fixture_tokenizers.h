// One tokenizer of each kind, from the fixtures of the tests.
#pragma once

#include <memory>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron::fuzz {

inline std::vector<std::unique_ptr<Tokenizer>> open_fixture_tokenizers() {
  const std::string folder = MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/";
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name :
       {"bert.json", "flavours.json", "gpt2", "gpt2.json", "llama2.json", "llama3.json",
        "metaspace.json", "qwen2.json", "sp_bpe_bytes.model", "sp_bpe_symbols.model",
        "sp_bpe_unused.model", "sp_unigram_bytes.model", "sp_unigram_symbols.model", "strips.json",
        "t5.json", "word_level.json"}) {
    TokenizerConfig config;
    config.tokenizer_model = folder + name;
    tokenizers.push_back(make_tokenizer(config));
  }
  for (const char* pattern : {"cl100k_base", "o200k_base", "tekken", "qwen"}) {
    TokenizerConfig config;
    config.tokenizer_model = folder + "small.tiktoken";
    config.tiktoken_pattern = pattern;
    tokenizers.push_back(make_tokenizer(config));
  }
  return tokenizers;
}

}  // namespace megatron::fuzz
