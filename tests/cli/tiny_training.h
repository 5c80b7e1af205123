// The flags of a tiny training run for the tests of the program, without those that set batches and
// length.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// Returns the arguments of `pretrain`: a model, its data and a log line for every step, then
/// `more`.
inline std::vector<std::string> tiny_training(const std::vector<std::string>& more) {
  std::vector<std::string> words{"gpt",
                                 "--num-layers",
                                 "1",
                                 "--hidden-size",
                                 "16",
                                 "--num-attention-heads",
                                 "2",
                                 "--seq-length",
                                 "8",
                                 "--vocab-size",
                                 "32",
                                 "--tokenizer-type",
                                 "NullTokenizer",
                                 "--mock-data",
                                 "--lr",
                                 "1e-3",
                                 "--lr-decay-style",
                                 "constant",
                                 "--eval-iters",
                                 "0",
                                 "--log-interval",
                                 "1",
                                 "--num-workers",
                                 "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace megatron
