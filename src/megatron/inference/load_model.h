// A trained model, ready to run: architecture and weights from a checkpoint of ours or a Hugging Face folder.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/inference_options.h"
#include "megatron/models/language_model.h"
#include "megatron/transformer/param_store.h"

namespace megatron {

struct LoadedModel {
  CheckpointSource source;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ParamStore> weights;  ///< without gradients; goes before the model
};

struct LoadModelOptions {
  c10::Device device{c10::kCPU};
  std::optional<c10::ScalarType> type = {};  ///< in which the model computes; none: its weights' own
};

/// The type that the flags name; none: the checkpoint's own.
std::optional<c10::ScalarType> requested_type(const ComputeOptions& options);

/// Loads the checkpoint at `root` (`step`, or the latest) without optimizer state. UserError when there is none.
LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step, LoadModelOptions options = {});

}  // namespace megatron
