// Loads a trained model for inference: architecture and weights from one of our checkpoints or from
// a Hugging Face folder.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/parallel_config.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

/// One rank's part of a model. Members are destroyed in reverse order.
struct LoadedModel {
  CheckpointSource source;
  std::unique_ptr<Model> stages;        ///< the pipeline stages that this rank holds
  std::unique_ptr<ParamStore> weights;  ///< their weights, without gradients
  ModelRunner runner;                   ///< runs the stages of all ranks
  c10::ScalarType type;                 ///< in which it computes
  bool packs_weights;                   ///< LoadModelOptions::packs_weights
};

struct LoadModelOptions {
  Rank rank = {};                ///< selects the part to load, and the device
  ParallelConfig parallel = {};  ///< parallel sizes; must match the rank's mesh
  /// Compute dtype; nullopt: the dtype of the weights.
  std::optional<c10::ScalarType> type = {};
  /// Packs the weights of linear layers for GEMMs on the CPU (Parameter::pack()).
  bool packs_weights = false;
  bool cache_mla_latents = false;  ///< TransformerConfig::cache_mla_latents
  const ModelFamilies* families = &library_families();
  std::string flag = "--load";  ///< names the folder in errors
};

/// Returns the dtype that the flags name; nullopt means the checkpoint's own.
std::optional<c10::ScalarType> requested_dtype(const ComputeOptions& options);

/// Loads the checkpoint at `root` (`step`, or the latest) without optimizer state: this rank's
/// layers and its shards of their weights. UserError when there is no checkpoint, or when the model
/// cannot be split as `options.parallel` requests. Collective over rank.model.
LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step,
                       const LoadModelOptions& options = {});

/// Loads the weights of another checkpoint of the same architecture into `model`, which must not be
/// in a pass, as in AsyncEngine::update_weights(). If it throws, the weights are not usable.
/// Collective over rank.model.
void reload_weights(LoadedModel& model, const std::filesystem::path& root,
                    std::optional<std::int64_t> step);

}  // namespace megatron
