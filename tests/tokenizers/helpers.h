// Helpers of the tokenizer tests: the fixtures, and opening a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron::testing {

/// Returns the path of the fixture `name`, a file or folder.
inline std::string fixture(const std::string& name) {
  return std::string(MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/") + name;
}

/// The settings of a tokenizer, for designated initializers.
struct TokenizerOptions {
  std::string tokenizer_type = {}, tokenizer_model = {}, vocab_file = {}, merge_file = {};
  std::optional<std::int64_t> vocab_size = {};
};

inline std::unique_ptr<Tokenizer> open(const TokenizerOptions& choice) {
  TokenizerConfig config;
  config.tokenizer_type = choice.tokenizer_type;
  config.tokenizer_model = choice.tokenizer_model;
  config.vocab_file = choice.vocab_file;
  config.merge_file = choice.merge_file;
  config.vocab_size = choice.vocab_size;
  return make_tokenizer(config);
}

}  // namespace megatron::testing
