// Fill-in-the-middle (Bavarian et al., 2022), as Megatron-LM's GPTFIMDataset: the text of a sample
// is cut at two random characters, and the middle goes to the end.
//   PSM: <prefix> p <suffix> s <middle> m        SPM: <prefix> <suffix> s <middle> p m
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatron/config/data_config.h"
#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Immutable and thread-safe.
class FillInTheMiddle {
 public:
  /// Throws a UserError if the tokenizer lacks a token that `config` names.
  FillInTheMiddle(const FimConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  /// Reorders the documents of a sample, which end-of-document tokens separate. The result has as
  /// many ids as `sample`: it is cut, or filled with --fim-pad-token. The draws and their order are
  /// Megatron-LM's.
  std::vector<std::int64_t> apply(std::span<const std::int64_t> sample, RandomState& random) const;

 private:
  using Ids = std::vector<std::int64_t>;
  void append_document(std::span<const std::int64_t> document, RandomState& random, Ids& out) const;
  void append_piece(std::span<const std::int64_t> piece, double rate, RandomState& random,
                    Ids& out) const;

  FimConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t prefix_, middle_, suffix_, pad_, eod_;
  std::int64_t fragment_separator_ = -1;  ///< −1: none
};

/// Returns the generator of sample `index` of a dataset: RandomState([seed, index mod 2³²,
/// index / 2³²]). Megatron-LM uses one generator for all samples, so there a sample depends on
/// those that the same worker has read before.
RandomState fim_random(std::int64_t seed, std::int64_t index);

}  // namespace megatron
