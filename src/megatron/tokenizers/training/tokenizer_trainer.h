// Trains a tokenizer on texts. This is the front of this folder.
//
//   TokenizerTrainer trainer(options, /*workers=*/2);
//   trainer.add_text(0, "a text");  // also from another thread: add_text(1, …)
//   TrainedTokenizer tokenizer = trainer.train(report_progress);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/training/trainer_options.h"
#include "megatron/tokenizers/training/word_counter.h"

namespace megatron {

/// The contents of the files of a trained tokenizer, and what it was trained on.
struct TrainedTokenizer {
  std::string tokenizer_json, tokenizer_config_json;
  std::int64_t words = 0, distinct_words = 0;
  std::int64_t vocab_size = 0;
};

/// Receives how much of a step is done.
using TrainingProgress =
    std::function<void(std::string_view step, std::int64_t done, std::int64_t total)>;

class TokenizerTrainer {
 public:
  /// Throws a UserError for names that do not exist and patterns that do not compile.
  TokenizerTrainer(TokenizerTrainerOptions options, std::size_t workers);

  /// Counts the words of a text of valid UTF-8. Several threads may call it at once with different
  /// numbers of workers.
  void add_text(std::size_t worker, std::string_view text);
  /// Trains on all texts with as many threads as there are workers, whose number does not change
  /// the result. Throws a UserError when there are no words, and when the vocabulary is too small
  /// for the alphabet.
  TrainedTokenizer train(const TrainingProgress& progress);

 private:
  TokenizerTrainerOptions options_;
  WordCounter counter_;
  std::vector<WordCounts> counts_;  ///< by worker
};

}  // namespace megatron
