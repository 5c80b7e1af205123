// A trained model, ready to run: architecture and weights from a checkpoint of ours or a Hugging
// Face folder.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/inference_options.h"
#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// A rank's part of a model. Goes in the opposite order.
struct LoadedModel {
  CheckpointSource source;
  std::unique_ptr<LanguageModel> stages;  ///< that this rank holds
  std::unique_ptr<ParamStore> weights;    ///< theirs, without gradients
  std::unique_ptr<LanguageModel>
      pipelined_logits;  ///< for the stages of all ranks; null where this rank has them all

  /// The whole model, whoever holds it; its logits are the same on every rank.
  LanguageModel& model() const { return pipelined_logits ? *pipelined_logits : *stages; }
};

struct LoadModelOptions {
  Rank rank = {};                ///< whose part is loaded, and its device
  ParallelConfig parallel = {};  ///< how the model is cut; of the rank's mesh
  std::optional<c10::ScalarType> type =
      {};  ///< in which the model computes; none: its weights' own
};

/// The type that the flags name; none: the checkpoint's own.
std::optional<c10::ScalarType> requested_dtype(const ComputeOptions& options);

/// Loads the checkpoint at `root` (`step`, or the latest) without optimizer state: this rank's
/// layers, and its shares of their weights. UserError when there is none, or when the model cannot
/// be cut as `options.parallel` says. Collective over rank.model.
LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step,
                       const LoadModelOptions& options = {});

}  // namespace megatron
