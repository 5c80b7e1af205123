#include "megatron/planner/rank_memory.h"

#include <algorithm>
#include <vector>

#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/freeze.h"
#include "megatron/models/model_spec.h"
#include "megatron/optimizer/optimizer_state.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"
#include "megatron/params/unit_buffers.h"
#include "megatron/planner/activation_memory.h"
#include "megatron/planner/run_costs.h"

namespace megatron {
namespace {

/// Divides the ranks that share weights into instances of the distributed optimizer, by size only.
void divide_instances(DataParallelOptions& options, std::int64_t num_instances) {
  if (options.shard.size == 1) return;
  options.shard.size /= num_instances;
  options.replica.rank = options.shard.rank / options.shard.size;
  options.shard.rank %= options.shard.size;
  options.replica.size = num_instances;
}

/// Optimizer state in memory and in the place of an offload.
struct StateBytes {
  double in_memory = 0, offloaded = 0;
};

std::vector<StateFormat> state_formats(const OptimizerConfig& config) {
  if (config.optimizer == "sgd")
    return config.sgd_momentum != 0 ? std::vector<StateFormat>{at::kFloat}
                                    : std::vector<StateFormat>{};
  return {state_format(config.exp_avg_dtype, false), state_format(config.exp_avg_sq_dtype, true)};
}

/// What --optimizer-cpu-offload takes out of memory; null without it.
std::shared_ptr<const StateOffload> planned_offload(const ParamStore& store,
                                                    const OffloadConfig& config) {
  if (!config.optimizer_cpu_offload) return nullptr;
  return std::make_shared<StateOffload>(
      store, sum_layout(store).ranges,
      StateOffloadOptions{.store = nullptr, .fraction = config.optimizer_offload_fraction});
}

StateBytes optimizer_state_bytes(const ParamStore& store, const OptimizerConfig& config,
                                 const std::shared_ptr<const StateOffload>& offload) {
  StateBytes bytes;
  for (const StateFormat& format : state_formats(config)) {
    const OptimizerState state(
        "", store, format, [](const Parameter&) { return true; }, offload);
    bytes.in_memory += static_cast<double>(state.num_bytes());
    if (state.offloaded() != nullptr)
      bytes.offloaded += static_cast<double>(state.offloaded()->num_bytes());
  }
  return bytes;
}

/// Returns the bytes of the copies that MainParameters keeps of a bucket.
double main_parameter_bytes(const ParamBucket& bucket) {
  if (!bucket.is_trained || c10::elementSize(bucket.dtype) != 2) return 0;
  constexpr double kFloatBytes = 4;
  return kFloatBytes * static_cast<double>(bucket.main_size());
}

/// Returns the sum of what `bytes_of` says over the buckets of each unit. Units are numbered in the
/// order of backward.
template <class BytesOf>
std::vector<std::int64_t> bytes_of_units(const ParamStore& store, const BytesOf& bytes_of) {
  std::vector<std::int64_t> units;
  for (const ParamBucket& bucket : store.buckets()) {
    units.resize(std::max(units.size(), bucket.unit + 1));
    units[bucket.unit] += bytes_of(bucket);
  }
  return units;
}

/// Returns the bytes of the buffers through which units of these sizes pass, `count` at a time.
double passed_buffer_bytes(const std::vector<std::int64_t>& units, std::size_t count) {
  UnitBuffers buffers(at::kMeta);
  buffers.reserve(units, count);
  return static_cast<double>(buffers.free_bytes());
}

/// Returns whether a weight of this rank is its embedding and its output layer. Its gradient is
/// open from the start of backward to the end.
bool is_tied(const ParamBucket& bucket, bool ties_embeddings) {
  return ties_embeddings && std::ranges::any_of(bucket.parameters, [](const Parameter* parameter) {
           return parameter->spec().tags.embedding && !parameter->is_shared();
         });
}

/// Returns the bytes of the gradients of units that are not yet reduced: of one unit, or of two
/// when reductions overlap backward, and of tied embeddings.
double gradient_buffer_bytes(const ParamStore& store, bool ties_embeddings) {
  std::vector<std::int64_t> units = bytes_of_units(store, [](const ParamBucket& bucket) {
    return bucket.shards_gradients() ? bucket.size * bucket.own_grad.element_size() : 0;
  });
  std::int64_t always_open = 0;
  for (const ParamBucket& bucket : store.buckets())
    if (is_tied(bucket, ties_embeddings)) always_open += std::exchange(units[bucket.unit], 0);
  return static_cast<double>(always_open) +
         passed_buffer_bytes(units, store.data_parallel().overlaps_grad_reduce ? 2 : 1);
}

/// Returns the bytes of what units hold while they are used: the weights of two that follow each
/// other in forward and backward, and gradients.
double unit_buffer_bytes(const ParamStore& store, bool ties_embeddings) {
  const DataParallelOptions& options = store.data_parallel();
  const std::vector<std::int64_t> complete = bytes_of_units(store, [](const ParamBucket& bucket) {
    return bucket.has_unit_values() ? bucket.complete_bytes() : 0;
  });
  // A slice that is gathered and one that is read ahead.
  const std::vector<std::int64_t> slices = bytes_of_units(store, [](const ParamBucket& bucket) {
    return bucket.offloads_values && bucket.is_sharded() ? bucket.slice_bytes() : 0;
  });
  return gradient_buffer_bytes(store, ties_embeddings) +
         passed_buffer_bytes(forward_and_backward(complete), 2) +
         passed_buffer_bytes(forward_and_backward(slices), options.overlaps_param_gather ? 2 : 1);
}

/// Returns the bytes of the copies of this rank's pieces that are offloaded.
double offloaded_main_bytes(const ParamStore& store, const StateOffload& offload) {
  double bytes = 0;
  for (std::size_t i = 0; i < store.pieces().size(); ++i) {
    const ParameterPiece& piece = store.pieces()[i];
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    if (offload.contains(i) && !bucket.is_precise && main_parameter_bytes(bucket) > 0)
      bytes += 4 * static_cast<double>(piece.count);
  }
  return bytes;
}

/// Returns the float32 copy of a gradient that error feedback makes for a contribution
/// (params/grad_error.h): of the largest weight. The contribution to an embedding that is not the
/// output layer comes last in backward, when nothing else is held.
double contribution_bytes(const std::vector<Parameter*>& declared, const Settings& settings,
                          bool has_output) {
  if (!settings.optimizer->main_grads_error_feedback) return 0;
  constexpr double kFloatBytes = 4;
  std::int64_t largest = 0;
  for (const Parameter* parameter : declared)
    if (has_output || !parameter->spec().tags.embedding)
      largest = std::max(largest, num_elements(parameter->local_shape()));
  return kFloatBytes * static_cast<double>(largest);
}

/// Returns the memory of an update whose state is offloaded (elementwise_rule.h): a window of each
/// kind of state, or two when the next one is read ahead, and those that wait to be written.
double update_window_bytes(const StateOffload& offload, double offloaded_bytes,
                           const OffloadConfig& config) {
  if (offload.windows().empty()) return 0;
  const double window = offloaded_bytes / static_cast<double>(offload.windows().size());
  return std::min(offloaded_bytes, (config.overlap_cpu_optimizer_d2h_h2d ? 2 : 1) * window +
                                       static_cast<double>(kOptimizerBytesInFlight));
}

/// Returns the number of microbatches whose activations a rank keeps at most in 1F1B: stage r of p
/// keeps p − r microbatches, or with several chunks what theoretical_memory() counts for
/// interleaved schedules.
double microbatches_in_flight(const Rank& rank, const PipelineLayout& layout,
                              std::int64_t num_microbatches) {
  const double stages = static_cast<double>(layout.num_ranks),
               chunks = static_cast<double>(layout.num_chunks);
  const double in_flight = layout.num_chunks > 1
                               ? stages + (stages - 1) / chunks
                               : static_cast<double>(layout.num_ranks - rank.pp.rank);
  return std::min(in_flight, static_cast<double>(num_microbatches));
}

/// Returns the options of the store of a training run, without communicators and without storage:
/// bytes of its buckets are known, their values are not.
ParamStore::Options planned_store_options(Settings settings, const Rank& rank) {
  const std::int64_t instances = settings.parallel->num_distributed_optimizer_instances;
  settings.parallel->num_distributed_optimizer_instances = 1;  // several need communicators
  ParamStore::Options options =
      store_options(settings, rank, params_dtype(*settings.training), /*communicators=*/nullptr);
  options.device = at::kMeta;
  options.with_gradients = true;
  divide_instances(options.data_parallel, instances);
  if (options.experts) divide_instances(options.experts->data_parallel, instances);
  return options;
}

}  // namespace

std::vector<std::int64_t> layers_of(const PipelineLayout& layout, std::int64_t pipeline_rank) {
  std::vector<std::int64_t> layers;
  for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk) {
    const StageLayers& stage = layout.of(pipeline_rank, chunk);
    for (std::int64_t i = 0; i < stage.num_layers; ++i) layers.push_back(stage.first_layer + i);
  }
  return layers;
}

StepShape step_shape(const Settings& settings, const Rank& rank, const PipelineLayout& layout,
                     std::int64_t num_microbatches) {
  StepShape shape{.layers = layers_of(layout, rank.pp.rank),
                  .has_output = false,
                  .vocabulary = padded_vocab_size(settings) / rank.tp.size,
                  .micro_batch_size = settings.training->micro_batch_size,
                  .microbatches_in_flight = microbatches_in_flight(rank, layout, num_microbatches),
                  .num_microbatches = num_microbatches,
                  .activations = activation_plan(*settings.memory, layout)};
  for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk)
    shape.has_output = shape.has_output || layout.of(rank.pp.rank, chunk).has_output;
  return shape;
}

std::uint64_t offload_bytes_in_flight(const Settings& settings, const ModelFamily& family,
                                      const Rank& rank, const PipelineLayout& layout) {
  constexpr double kLeast = 16 << 20;
  LayerTraces traces(family);
  const StageActivations stage =
      stage_activations(settings, rank, layers_of(layout, rank.pp.rank),
                        activation_plan(*settings.memory, layout), traces);
  double largest = 0;
  for (const double bytes : stage.offloaded) largest = std::max(largest, bytes);
  return static_cast<std::uint64_t>(std::clamp(largest, kLeast, kMostOffloadInFlight));
}

RankMemory parameter_memory(const std::vector<Parameter*>& declared, const Settings& settings,
                            const Rank& rank, const UnitParameters& units) {
  ParamStore::Options options = planned_store_options(settings, rank);
  options.unit_starts = units.starts;
  options.offloaded_values = units.offloaded;
  const ParamStore store(declared, std::move(options));
  RankMemory memory;
  for (const ParamBucket& bucket : store.buckets()) {
    if (bucket.offloads_values)
      memory.offloaded_weights += static_cast<double>(bucket.slice_bytes());
    else
      memory.parameters += static_cast<double>(bucket.kept_value().nbytes());
    memory.main_parameters += main_parameter_bytes(bucket);
    if (bucket.kept_grad().defined())
      memory.gradients += static_cast<double>(bucket.kept_grad().nbytes());
  }
  memory.gradients += static_cast<double>(store.num_grad_error_bytes());
  for (const Parameter* parameter : declared) {
    if (parameter->is_trained() && parameter->is_shared())
      memory.sharing_stages.push_back(parameter->spec().holders.ranks);
    if (parameter->spec().kind == ParameterKind::state) continue;
    const double count = static_cast<double>(num_elements(parameter->local_shape()));
    if (parameter->spec().tags.expert) {
      memory.num_expert_weights += count;
      memory.expert_parameters += count * static_cast<double>(c10::elementSize(parameter->dtype()));
    } else {
      memory.num_dense_weights += count;
    }
  }
  const auto offload = planned_offload(store, settings.memory->offload);
  const StateBytes state = optimizer_state_bytes(store, *settings.optimizer, offload);
  memory.optimizer_state = state.in_memory;
  memory.buffers = unit_buffer_bytes(store, !settings.model->untie_embeddings_and_output_weights);
  if (offload) {
    const double main = offloaded_main_bytes(store, *offload);
    memory.main_parameters -= main;
    memory.offloaded_state = main + state.offloaded;
    memory.update_windows =
        update_window_bytes(*offload, memory.offloaded_state, settings.memory->offload);
  }
  return memory;
}

RankMemory predict_rank_memory(const Settings& settings, LayerTraces& traces, const Rank& rank,
                               const PipelineLayout& layout, std::int64_t num_microbatches) {
  const auto model =
      traces.family().make(*settings.model, rank,
                           {.vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
                            .dtype = params_dtype(*settings.training),
                            .layout = &layout});
  freeze_parameters(*model, *settings.optimizer);
  const std::vector<Parameter*> declared = declared_parameters(*model);
  RankMemory memory =
      parameter_memory(declared, settings, rank, unit_parameters(*model, settings, rank, layout));
  const ActivationLayout activations = activation_layout(settings, rank);
  const StepShape shape = step_shape(settings, rank, layout, num_microbatches);
  const StageActivations stage =
      stage_activations(settings, rank, shape.layers, shape.activations, traces);
  // A depth of multi-token prediction also keeps embeddings, and the rows around norms (2 and 2).
  const auto depths = std::ranges::count_if(
      shape.layers, [&](std::int64_t layer) { return layer >= settings.model->num_layers; });
  memory.activations = shape.microbatches_in_flight *
                       (stage.total_kept() + 5 * static_cast<double>(depths) *
                                                 hidden_bytes(*settings.model, activations));
  memory.offloaded_activations = stage.total_offloaded();
  memory.buffers += step_buffer_bytes(*settings.model, activations, shape, stage) +
                    contribution_bytes(declared, settings, shape.has_output);
  // An update holds windows, but no activations.
  memory.buffers = std::max(memory.buffers, memory.update_windows - memory.activations);
  return memory;
}

}  // namespace megatron
