#include "tokenizers/helpers.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron::testing {

std::string fixture(const std::string& name) {
  return std::string(MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/") + name;
}

std::unique_ptr<Tokenizer> open(const TokenizerOptions& choice) {
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

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<Case> cases_of(const std::string& name) {
  std::istringstream lines(read_file(fixture(name + ".jsonl")));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, name);
    cases.push_back({from_hex(json.at("hex")), json.at("ids"), json.at("text"), json.at("kept")});
  }
  return cases;
}

}  // namespace megatron::testing
