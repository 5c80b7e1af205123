// Helpers of the tokenizer tests: the fixtures, and opening a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron::testing {

/// Returns the path of the fixture `name`, a file or folder.
std::string fixture(const std::string& name);

/// The settings of a tokenizer, for designated initializers.
struct TokenizerOptions {
  std::string tokenizer_type = {}, tokenizer_model = {}, vocab_file = {}, merge_file = {};
  std::optional<std::int64_t> vocab_size = {};
  std::string tiktoken_pattern = {};
  std::int64_t tiktoken_num_special_tokens = 1000;
};

std::unique_ptr<Tokenizer> open(const TokenizerOptions& choice);

/// Returns the bytes that two hexadecimal digits each stand for.
std::string from_hex(const std::string& hex);

/// A line of a fixture *.jsonl with what the real package says about it.
struct Case {
  std::string line;
  std::vector<std::int32_t> ids;
  std::string text, kept;
};

std::vector<Case> cases_of(const std::string& name);

}  // namespace megatron::testing
