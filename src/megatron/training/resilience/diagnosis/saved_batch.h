// Saves a microbatch with a non-finite result as a small safetensors file, with everything that
// `megatron replay FILE` needs to run it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/microbatch.h"

namespace megatron {

struct SavedBatch {
  Microbatch microbatch = {};
  std::int64_t iteration = 0;  ///< one-based iteration of the failed step
  std::int64_t index = 0, num_microbatches = 1;
  double gradient_scale = 0;  ///< factor on the loss before backward
  std::uint64_t seed = 0;
  std::int64_t vocab_pad_multiple = 128;
  std::string family = "gpt";    ///< the model's; older files hold no other
  TransformerConfig model = {};  ///< resolved
  std::string precision = "fp32";
  /// Folder of the checkpoint that holds the weights; empty: initial weights, drawn from the seed.
  std::string checkpoint_root = {};
  /// Iteration of that checkpoint; −1: no checkpoint holds the weights.
  std::int64_t checkpoint_iteration = 0;
  std::string cause = {};  ///< error message of the run
};

/// Returns "folder/batch_iter_0000123_microbatch_2.safetensors" (microbatches count from 1).
std::filesystem::path saved_batch_path(const std::filesystem::path& folder,
                                       const SavedBatch& batch);

/// Writes the file (docs/formats/saved-batch.md). UserError when it cannot be written.
void save_batch(const std::filesystem::path& path, const SavedBatch& batch);

/// Reads and validates a file written by save_batch(). UserError names the file and the problem.
SavedBatch load_batch(const std::filesystem::path& path);

}  // namespace megatron
