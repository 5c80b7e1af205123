// What `megatron tokenizer info` and `diff` share: opening tokenizers, and their figures of a text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/cli/tokenizer_command.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/inspection/text_statistics.h"
#include "megatron/tokenizers/inspection/tokenizer_description.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct OpenedTokenizer {
  TokenizerConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  TokenizerDescription about;
};

/// Opens the tokenizer of a file or folder.
OpenedTokenizer open_tokenizer(const TokenizerCommandOptions& options, const std::string& file);

/// Returns the token as a JSON string; bytes that are no UTF-8 become U+FFFD.
std::string quoted_token(const std::string& token);

/// Returns "BPE, 31743 merges, 32000 tokens" or the like.
std::string summary_of(const TokenizerDescription& about);

/// Returns the rows of the figures of a text, a label and a value each.
std::vector<std::pair<std::string, std::string>> text_rows(const TextStatistics& text,
                                                           const WordStatistics& words);
JsonText text_json(const TextStatistics& text, const WordStatistics& words);

/// Prints rows, of which each has a label and values, in columns.
void print_rows(const std::vector<std::vector<std::string>>& rows);

}  // namespace megatron
