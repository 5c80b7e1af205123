// The microbatch that went wrong as one small safetensors file, with all that is needed to run it
// again: `megatron replay FILE`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "megatron/config/settings.h"
#include "megatron/nn/microbatch.h"

namespace megatron {

struct SavedBatch {
  Microbatch microbatch = {};
  std::int64_t iteration = 0;  ///< one-based: the step that was not done
  std::int64_t index = 0, num_microbatches = 1;
  double gradient_scale = 0;  ///< of the loss before backward
  std::uint64_t seed = 0;
  std::int64_t vocab_pad_multiple = 128;
  TransformerConfig model = {};  ///< resolved
  std::string precision = "fp32";
  std::string checkpoint_root = {};       ///< folder whose checkpoint holds the weights; empty: the
                                          ///< run's initial weights, drawn from the seed
  std::int64_t checkpoint_iteration = 0;  ///< of that checkpoint; −1: no checkpoint has the weights
  std::string cause = {};                 ///< the message of the run
};

/// "folder/batch_iter_0000123_microbatch_2.safetensors" (microbatches counted from 1).
std::filesystem::path saved_batch_path(const std::filesystem::path& folder,
                                       const SavedBatch& batch);

/// Writes the file (docs/formats/saved-batch.md). UserError when it cannot be written.
void save_batch(const std::filesystem::path& path, const SavedBatch& batch);

/// Reads and checks a file of save_batch. UserErrors name the file and what is wrong with it.
SavedBatch load_batch(const std::filesystem::path& path);

}  // namespace megatron
