// The options of `megatron tokenizer` and its actions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/datasets/text_corpus.h"
#include "megatron/tokenizers/training/trainer_options.h"

namespace megatron {

/// The values of --text-documents: those of preprocess-data, and the lines of the package's files.
enum class TrainingDocuments { full_line, line, paragraph, file };

struct TokenizerCommandOptions {
  std::vector<std::string> operands;  ///< the action, then files
  TokenizerTrainerOptions trainer;
  std::vector<std::string> special_tokens;
  std::string output;
  std::vector<std::string> json_keys;
  TrainingDocuments text_documents = TrainingDocuments::full_line;
  std::string on_error = "stop";
  std::int64_t workers = std::max(1u, std::thread::hardware_concurrency());
  TokenizerConfig tokenizer;
  std::vector<std::string> text;
  bool json = false;

  /// Returns the words after the action.
  std::vector<std::string> files() const { return {operands.begin() + 1, operands.end()}; }
  /// Returns how the texts in `inputs` are read.
  TextCorpusOptions corpus(std::vector<std::string> inputs) const;
};

/// Run the actions, of which each checks the options that it needs.
int run_tokenizer_train(const TokenizerCommandOptions& options);
int run_tokenizer_info(const TokenizerCommandOptions& options);
int run_tokenizer_diff(const TokenizerCommandOptions& options);

}  // namespace megatron
