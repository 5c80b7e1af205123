#include "megatron/inference/load_model.h"

#include <iostream>
#include <string>

#include "megatron/base/error.h"
#include "megatron/models/gpt_model.h"

namespace megatron {

namespace {

/// The layers compute in float32 and float64; weights in 16 bits are widened, which changes none of them.
c10::ScalarType compute_type(c10::ScalarType stored) { return stored == c10::kDouble ? c10::kDouble : c10::kFloat; }

}  // namespace

LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step, c10::Device device) {
  auto source = find_checkpoint(root, step);
  if (!source) {
    throw UserError({"--load " + root.string(), "no checkpoint there",
                     "give the --save folder of a training run, or a Hugging Face folder (config.json and safetensors files)"});
  }
  for (const std::string& note : source->notes) std::cerr << "note: " << note << '\n';
  LoadedModel loaded{.source = std::move(*source), .model = nullptr, .weights = nullptr};
  loaded.model = make_gpt_model(loaded.source.model, Rank{.device = device});
  loaded.weights = std::make_unique<ParamStore>(
      *loaded.model, ParamStore::Options{.device = device, .dtype = compute_type(loaded.source.weight_type), .with_gradients = false});
  load_weights(loaded.source, *loaded.weights);
  return loaded;
}

}  // namespace megatron
