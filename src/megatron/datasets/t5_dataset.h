// Samples for T5, as megatron-core's T5MaskedWordPieceDataset: runs of words are replaced by
// sentinels in the encoder's text, and the decoder predicts them (Raffel et al., 2020).
#pragma once

#include <vector>

#include "megatron/datasets/masked_dataset.h"

namespace megatron {

class T5Dataset : public MaskedDataset {
 public:
  T5Dataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
            std::vector<std::string>& warnings);

  /// Returns megatron-core's text_enc, text_dec, labels (0 where nothing is predicted), loss_mask,
  /// truncated, enc_mask and dec_mask. Throws a UserError for a sample with more runs than there
  /// are sentinels, or that does not fit the decoder.
  Sample sample(std::int64_t index) const override;
};

}  // namespace megatron
