#include "megatron/inference/load_model.h"

#include <iostream>
#include <string>

#include "megatron/base/error.h"
#include "megatron/models/gpt_model.h"

namespace megatron {
namespace {

/// Layers compute in 16, 32 and 64 bits; anything narrower is widened to float32.
c10::ScalarType own_type(c10::ScalarType stored) {
  const bool computable = stored == c10::kBFloat16 || stored == c10::kHalf || stored == c10::kDouble;
  return computable ? stored : c10::kFloat;
}

}  // namespace

std::optional<c10::ScalarType> requested_type(const ComputeOptions& options) {
  if (options.bf16) return c10::kBFloat16;
  if (options.fp16) return c10::kHalf;
  if (options.fp32) return c10::kFloat;
  return std::nullopt;
}

LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step, LoadModelOptions options) {
  auto source = find_checkpoint(root, step);
  if (!source) {
    throw UserError({"--load " + root.string(), "no checkpoint there",
                     "give the --save folder of a training run, or a Hugging Face folder (config.json and safetensors files)"});
  }
  for (const std::string& note : source->notes) std::cerr << "note: " << note << '\n';
  LoadedModel loaded{.source = std::move(*source), .model = nullptr, .weights = nullptr};
  loaded.model = make_gpt_model(loaded.source.model, Rank{.device = options.device});
  const c10::ScalarType type = options.type.value_or(own_type(loaded.source.weight_type));
  loaded.weights = std::make_unique<ParamStore>(*loaded.model, ParamStore::Options{.device = options.device, .dtype = type, .with_gradients = false});
  load_weights(loaded.source, *loaded.weights);
  return loaded;
}

}  // namespace megatron
