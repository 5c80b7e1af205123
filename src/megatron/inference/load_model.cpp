#include "megatron/inference/load_model.h"

#include <utility>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Returns the compute dtype: layers support 16, 32 and 64 bits; narrower types are widened to
/// float32.
c10::ScalarType default_compute_dtype(c10::ScalarType stored) {
  const bool computable =
      stored == c10::kBFloat16 || stored == c10::kHalf || stored == c10::kDouble;
  return computable ? stored : c10::kFloat;
}

/// Throws UserError when the model cannot be split as requested.
PipelineLayout layout_of(const TransformerConfig& model, const ParallelConfig& parallel) {
  Settings settings;
  settings.model = model;
  settings.parallel = parallel;
  validate_model(settings).throw_if_any();
  return pipeline_layout(parallel, model);
}

CheckpointSource checkpoint_at(const std::filesystem::path& root, std::optional<std::int64_t> step,
                               const std::string& flag) {
  auto source = find_checkpoint(root, step, flag + " ");
  if (!source) {
    throw UserError({flag + " " + root.string(), "no checkpoint there",
                     "give the --save folder of a training run, or a Hugging Face folder "
                     "(config.json and safetensors files)"});
  }
  return *std::move(source);
}

void load_into(ParamStore& weights, const CheckpointSource& source, bool packs) {
  for (Parameter* parameter : weights.parameters()) parameter->release_packed();
  load_weights(source, weights);
  if (packs)
    for (Parameter* parameter : weights.parameters()) parameter->pack();
}

}  // namespace

std::optional<c10::ScalarType> requested_dtype(const ComputeOptions& options) {
  if (options.bf16) return c10::kBFloat16;
  if (options.fp16) return c10::kHalf;
  if (options.fp32) return c10::kFloat;
  return std::nullopt;
}

LoadedModel load_model(const std::filesystem::path& root, std::optional<std::int64_t> step,
                       const LoadModelOptions& options) {
  CheckpointSource source = checkpoint_at(root, step, options.flag);
  if (options.cache_mla_latents && !source.model.multi_latent_attention)
    throw UserError(
        {"--cache-mla-latents: the model has no multi-latent attention", "", "leave it out"});
  const ParallelConfig& parallel = options.parallel;
  if (source.model.decoder_num_layers > 0 &&
      (parallel.pipeline_model_parallel_size > 1 || parallel.context_parallel_size > 1))
    throw UserError({options.flag + " " + root.string() + ": holds a t5 model",
                     "in this version neither the stages of a pipeline nor the ranks of cp share a "
                     "model with an encoder and a decoder",
                     "leave --pipeline-model-parallel-size and --context-parallel-size out, or "
                     "shard the model with --tensor-model-parallel-size"});
  source.model.cache_mla_latents = options.cache_mla_latents;
  const PipelineLayout layout = layout_of(source.model, options.parallel);
  const c10::ScalarType type = options.type.value_or(default_compute_dtype(source.weight_type));
  const Rank& rank = options.rank;
  auto stages = find_model_family(source.family, *options.families)
                    .make(source.model, rank, {.dtype = type, .layout = &layout});
  if (rank.cp.size > 1 && stages->keeps_states())
    throw UserError({"--context-parallel-size " + std::to_string(rank.cp.size),
                     "layers of " + source.family +
                         " keep a state, which all tokens of a prompt pass through in order",
                     "leave it out"});
  auto weights = std::make_unique<ParamStore>(
      declared_parameters(*stages),
      ParamStore::Options{.device = rank.device,
                          .dtype = type,
                          .with_gradients = false,
                          .model = rank.model,
                          .experts = ReplicaGroups{.model = rank.expert_model}});
  load_into(*weights, source, options.packs_weights);
  const ModelRunner runner(*stages, *weights, layout, rank.pp, rank.cp);
  return {std::move(source),    std::move(stages), std::move(weights), runner, type,
          options.packs_weights};
}

void reload_weights(LoadedModel& model, const std::filesystem::path& root,
                    std::optional<std::int64_t> step) {
  load_into(*model.weights, checkpoint_at(root, step, "--load"), model.packs_weights);
}

}  // namespace megatron
