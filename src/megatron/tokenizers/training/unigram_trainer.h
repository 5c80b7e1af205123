// Trains a Unigram model (Kudo, 2018) by EM as UnigramTrainer of the `tokenizers` package does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megatron/tokenizers/training/trained_files.h"
#include "megatron/tokenizers/training/word_counts.h"

namespace megatron {

/// The settings of UnigramTrainer, under its names.
struct UnigramTrainerOptions {
  std::int64_t vocab_size = 8000;
  std::vector<std::string> special_tokens = {};
  std::string unk_token = {};  ///< becomes the first token when it is no special token; "": none
  double shrinking_factor = 0.75;
  std::int64_t n_sub_iterations = 2;
  std::int64_t max_piece_length = 16;
  std::int64_t seed_size = 1000000;
  std::int64_t workers = 1;  ///< number of threads, which does not change the result
  /// Receives the iterations of EM that are done, and how many there are about.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// Trains on distinct words of valid UTF-8. Sums run in the order of the sorted words, where the
/// package takes a random order, so scores agree within rounding. Throws a UserError when the
/// characters and the special tokens exceed the size of the vocabulary.
TrainedUnigram train_unigram(std::vector<CountedWord> words, const UnigramTrainerOptions& options);

}  // namespace megatron
