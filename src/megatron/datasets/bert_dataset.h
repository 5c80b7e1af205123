// Samples for BERT, as megatron-core's BERTMaskedWordPieceDataset: two parts of a document, in
// order or not, with masked words (Devlin et al., 2018).
#pragma once

#include <vector>

#include "megatron/datasets/masked_dataset.h"

namespace megatron {

class BertDataset : public MaskedDataset {
 public:
  BertDataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
              std::vector<std::string>& warnings);

  /// Returns megatron-core's types, labels (0 where nothing is predicted), is_random (the parts are
  /// in the wrong order), padding_mask, loss_mask and truncated. The tokens are its text.
  Sample sample(std::int64_t index) const override;

 private:
  struct Pair {
    std::vector<std::int64_t> first, second;
    bool is_random = false, truncated = false;
  };
  Pair draw_pair(Draw& draw) const;
  static void truncate(Pair& pair, std::int64_t length, RandomState& random);
};

}  // namespace megatron
