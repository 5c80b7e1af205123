// A training set: numbered samples in training order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// One sequence for a left-to-right model; every vector but `document_starts` has sequence_length
/// elements.
struct Sample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;  ///< the token that follows each token
  std::vector<float>
      loss_mask;  ///< 0 where the label is padding, and after an end of document with eod_mask_loss
  std::vector<std::int64_t>
      position_ids;  ///< restart after an end of document with reset_position_ids
  std::vector<std::int64_t> document_starts;  ///< with reset_attention_mask: where attention
                                              ///< restarts, first 0; else only 0
};

/// What a number of samples takes from one corpus.
struct CorpusShare {
  std::string name;          ///< the path prefix, or "mock data"
  double weight = 1;         ///< in the blend
  std::int64_t tokens = 0;   ///< of the split's part of the corpus
  std::int64_t samples = 0;  ///< of this corpus among them; of a blend, to the nearest
  double epochs = 0;         ///< how often they go over those tokens
};

/// Samples may be read by many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// Sample `index`, 0 ≤ index < size().
  virtual Sample sample(std::int64_t index) const = 0;
  /// The raw ids of a sample: sequence_length + 1 of them when samples carry an extra token.
  virtual std::vector<std::int64_t> text(std::int64_t index) const = 0;
  /// How errors name a sample: its dataset and number there.
  virtual std::string describe(std::int64_t index) const = 0;
  /// What the first `samples` samples take from each corpus. Reads the length of every document:
  /// for one rank, once.
  virtual std::vector<CorpusShare> shares(std::int64_t samples) const = 0;
};

}  // namespace megatron
