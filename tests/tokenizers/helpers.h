// Helpers of the tokenizer tests: the fixtures, and opening a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
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
  std::string tiktoken_pattern = {};
  std::int64_t tiktoken_num_special_tokens = 1000;
};

inline std::unique_ptr<Tokenizer> open(const TokenizerOptions& choice) {
  TokenizerConfig config;
  config.tokenizer_type = choice.tokenizer_type;
  config.tokenizer_model = choice.tokenizer_model;
  config.vocab_file = choice.vocab_file;
  config.merge_file = choice.merge_file;
  config.vocab_size = choice.vocab_size;
  config.tiktoken_pattern = choice.tiktoken_pattern;
  config.tiktoken_num_special_tokens = choice.tiktoken_num_special_tokens;
  return make_tokenizer(config);
}

/// Returns the bytes that two hexadecimal digits each stand for.
inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// A line of a fixture *.jsonl with what the real package says about it.
struct Case {
  std::string line;
  std::vector<std::int32_t> ids;
  std::string text, kept;
};

inline std::vector<Case> cases_of(const std::string& name) {
  std::istringstream lines(read_file(fixture(name + ".jsonl")));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, name);
    cases.push_back({from_hex(json.at("hex")), json.at("ids"), json.at("text"), json.at("kept")});
  }
  return cases;
}

}  // namespace megatron::testing
