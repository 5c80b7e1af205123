// Builds the three indices of a corpus as pure functions: documents shuffled over epochs, samples
// cut from their concatenation, and shuffled samples. The numbers equal those of megatron-core's
// GPTDataset for the same seed.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/datasets/npy.h"
#include "megatron/datasets/random_state.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

struct GptIndexInput {
  UnalignedView<std::int32_t> lengths;      ///< number of tokens of every sequence of the source
  std::int64_t begin = 0, end = 0;          ///< range of this split's sequences
  std::optional<std::int64_t> num_samples;  ///< nullopt: one epoch
  std::int64_t sequence_length = 0;
  std::uint32_t seed = 0;
  bool drop_last_partial_sequence = true;
  bool add_extra_token = true;  ///< samples hold sequence_length + 1 tokens and overlap by one
};

/// The number of epochs, and whether the last, partial epoch is shuffled separately.
struct EpochPlan {
  std::int64_t tokens_per_epoch = 0;
  std::int64_t num_epochs = 1;
  bool separate_final_epoch = false;
  std::int64_t samples_before_final_epoch = 0;  ///< set when num_epochs > 1
  std::int64_t total_samples = 0;
};

/// Plans the epochs of a split. The split must have at least one token if num_samples is set.
EpochPlan plan_epochs(const GptIndexInput& input);

struct GptIndex {
  NpyArray document_index;  ///< int32 [documents × epochs]: sequence numbers in reading order
  NpyArray sample_index;    ///< int32 or int64 [samples + 1, 2]: position in document_index, offset
                            ///< in that sequence
  NpyArray shuffle_index;   ///< uint32 or int64 [samples]: the sample at each position in training
};

GptIndex build_gpt_index(const GptIndexInput& input);

}  // namespace megatron
