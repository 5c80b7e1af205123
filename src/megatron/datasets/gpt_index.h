// The three indices that put a corpus into training order, as pure functions: documents shuffled
// over epochs, samples cut from their concatenation, samples shuffled. Same numbers as
// megatron-core's GPTDataset for the same seed.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/datasets/npy.h"
#include "megatron/datasets/random_state.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

struct GptIndexInput {
  UnalignedView<std::int32_t> lengths;      ///< tokens of every sequence of the source
  std::int64_t begin = 0, end = 0;          ///< the sequences of this split
  std::optional<std::int64_t> num_samples;  ///< nothing: one epoch
  std::int64_t sequence_length = 0;
  std::uint32_t seed = 0;
  bool drop_last_partial_sequence = true;
  bool add_extra_token = true;  ///< samples hold sequence_length + 1 tokens and overlap by one
};

/// How often the split is repeated, and whether its last, partial epoch is shuffled apart.
struct EpochPlan {
  std::int64_t tokens_per_epoch = 0;
  std::int64_t num_epochs = 1;
  bool separate_final_epoch = false;
  std::int64_t samples_before_final_epoch = 0;  ///< set when num_epochs > 1
  std::int64_t total_samples = 0;
};

/// The plan of a split that has at least one token, or asks for no number of samples.
EpochPlan plan_epochs(const GptIndexInput& input);

struct GptIndex {
  NpyArray document_index;  ///< int32 [documents × epochs]: sequence numbers in reading order
  NpyArray sample_index;    ///< int32 or int64 [samples + 1, 2]: position in document_index, offset
                            ///< in that sequence
  NpyArray
      shuffle_index;  ///< uint32 or int64 [samples]: sample number at each position of training
};

GptIndex build_gpt_index(const GptIndexInput& input);

}  // namespace megatron
