// The options of `megatron tokenizer` and its actions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/text_corpus.h"
#include "megatron/tokenizers/training/trainer_options.h"

namespace megatron {

/// The values of --text-documents: those of preprocess-data, and the lines of the package's files.
enum class TrainingDocuments { full_line, line, paragraph, file };

struct TokenizerCommandOptions {
  std::string action;
  std::vector<std::string> files;  ///< the words after the action
  TokenizerTrainerOptions trainer;
  std::vector<std::string> special_tokens;
  std::string output;
  std::vector<std::string> json_keys;
  InputFormat input_format = InputFormat::by_name;
  TrainingDocuments text_documents = TrainingDocuments::full_line;
  std::string on_error = "stop";
  std::int64_t workers = std::max(1u, std::thread::hardware_concurrency());
  TokenizerConfig tokenizer;
  std::vector<std::string> text;
  bool json = false;

  /// Returns how the texts in `inputs` are read.
  TextCorpusOptions corpus(std::vector<std::string> inputs) const;
};

/// Run the actions, of which each checks the options that it needs.
int run_tokenizer_train(const TokenizerCommandOptions& options);
int run_tokenizer_info(const TokenizerCommandOptions& options);
int run_tokenizer_diff(const TokenizerCommandOptions& options);

}  // namespace megatron
