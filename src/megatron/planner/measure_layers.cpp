#include "megatron/planner/measure_layers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "megatron/base/format.h"
#include "megatron/base/median.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/config/context_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/link_speed.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/planner/device_peak.h"
#include "megatron/planner/layer_trace.h"

namespace megatron {
namespace {

constexpr int kNumRepetitions = 5;  ///< the first one is a warm-up

/// The layers that are measured: the first of each kind that the model has, but of two stacks those
/// next to each other, between which the same tensors pass as in the model.
std::vector<std::int64_t> measured_layers(const TransformerConfig& model) {
  if (model.decoder_num_layers > 0)
    return {model.encoder_num_layers() - 1, model.encoder_num_layers()};
  std::vector<std::int64_t> layers;
  ByKind<bool> kinds;
  for (std::int64_t layer = 0; layer < model.num_all_layers(); ++layer)
    if (!std::exchange(kinds[model.kind(layer)], true)) layers.push_back(layer);
  return layers;
}

/// Returns embedding, each of `layers` and output as stages on one rank.
PipelineLayout parts_layout(const std::vector<std::int64_t>& layers) {
  PipelineLayout layout{.stages = {{.has_embedding = true}}};
  for (const std::int64_t layer : layers)
    layout.stages.push_back({.first_layer = layer, .num_layers = 1});
  layout.stages.push_back({.first_layer = layers.back() + 1, .has_output = true});
  layout.num_chunks = static_cast<std::int64_t>(layout.stages.size());
  return layout;
}

/// Returns a schedule that runs F of every part, then B and W of each.
Schedule parts_schedule(std::int64_t num_parts) {
  Schedule schedule{.name = "parts", .num_chunks = num_parts, .ranks = {{}}};
  const auto add = [&](StepKind kind, std::int64_t chunk) {
    schedule.ranks[0].push_back({.kind = kind, .chunk = static_cast<std::int32_t>(chunk)});
  };
  for (std::int64_t chunk = 0; chunk < num_parts; ++chunk) add(StepKind::forward, chunk);
  for (std::int64_t chunk = num_parts; chunk-- > 0;) {
    add(StepKind::backward_input, chunk);
    add(StepKind::backward_weight, chunk);
  }
  return schedule;
}

/// Records the time of every step of that schedule.
class StepStopwatch : public StepListener {
 public:
  explicit StepStopwatch(c10::Device device) : device_(device) {}
  void begin(const ScheduleStep& /*step*/) override {
    synchronize(device_);
    begin_s_ = monotonic_seconds();
  }
  void end(const ScheduleStep& step) override {
    synchronize(device_);
    seconds_[{step.chunk, step.kind}].push_back(monotonic_seconds() - begin_s_);
  }
  double of(std::int32_t chunk, StepKind kind) const {
    const std::vector<double>& all = seconds_.at({chunk, kind});
    return median({all.begin() + 1, all.end()});
  }

 private:
  c10::Device device_;
  double begin_s_ = 0;
  std::map<std::pair<std::int32_t, StepKind>, std::vector<double>> seconds_;
};

/// Returns the rows of a full microbatch of hybrid context parallelism.
std::int64_t hybrid_rows(const Settings& settings, const Rank& rank) {
  const std::int64_t rows = tokens_per_rank(settings, rank.cp.size);
  return rank.sequence_parallel ? rows / rank.tp.size * rank.tp.size : rows;
}

}  // namespace

Microbatch synthetic_microbatch(const Settings& settings, const ModelFamily& family,
                                const Rank& rank) {
  const bool is_hybrid = settings.parallel->hybrid_context_parallel;
  const std::int64_t samples = settings.training->micro_batch_size,
                     length =
                         is_hybrid ? hybrid_rows(settings, rank) : settings.training->seq_length;
  const auto ids = at::TensorOptions().dtype(at::kLong).device(rank.device);
  const at::Tensor tokens = at::arange(samples * length, ids)
                                .remainder(settings.model->vocab_size)
                                .view({samples, length});
  Microbatch microbatch;
  microbatch.tensors = {{"tokens", tokens},
                        {"labels", tokens},
                        {"position_ids", at::arange(length, ids).unsqueeze(0)},
                        {"loss_mask", at::ones({samples, length}, ids.dtype(at::kFloat))},
                        {"loss_gradient", at::ones({}, ids.dtype(at::kFloat))}};
  microbatch.sample_ordinals = at::arange(samples, ids);
  if (family.add_fields) family.add_fields(microbatch);
  if (is_hybrid)  // one document that fills a rank
    microbatch.packed = {.cu_seqlens = {0, length}, .hybrid = HybridContext{.parts = {0, length}}};
  return context_slice(std::move(microbatch), rank.cp.rank, rank.cp.size);
}

namespace {

/// Sends hidden states once around the ring of pipeline ranks, all ranks at the same time.
double measure_p2p_seconds(const Settings& settings, const Rank& rank) {
  const Axis& pp = rank.pp;
  if (pp.size == 1) return 0;
  const std::int64_t rows =
      tokens_per_rank(settings, rank.cp.size) / settings.training->micro_batch_size;
  const std::vector<std::int64_t> shape{rank.sequence_parallel ? rows / rank.tp.size : rows,
                                        settings.training->micro_batch_size,
                                        settings.model->hidden_size};
  return ring_message_seconds(
      pp,
      at::zeros(shape,
                at::TensorOptions().dtype(params_dtype(*settings.training)).device(rank.device)));
}

/// Returns this rank without pipeline and data parallelism. Its experts stay divided over ep.
Rank single_rank(Rank rank) {
  rank.pp = Axis{"pp"};
  rank.dp = Axis{"dp"};
  rank.dp_cp = Axis{"dp-cp"};
  rank.model = rank.tp;
  rank.edp = Axis{"edp"};
  rank.expert_model = rank.ep;
  return rank;
}

StepStopwatch measure_parts(const Settings& settings, const ModelFamily& family, const Rank& rank,
                            const PipelineLayout& layout, const ActivationPlan* activations) {
  const MakeModelOptions options{
      .vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
      .dtype = params_dtype(*settings.training),
      .layout = &layout,
      .activations = activations};
  const TransformerConfig config = as_one_stack(*settings.model);
  const auto model = family.make(config, rank, options);
  ParamStore weights(declared_parameters(*model), {.device = rank.device,
                                                   .dtype = options.dtype,
                                                   .grad_dtype = at::kFloat,
                                                   .experts = ReplicaGroups{}});
  weights.initialize(rank.seed);
  const std::vector<Microbatch> batch{synthetic_microbatch(settings, family, rank)};
  const Schedule schedule = parts_schedule(layout.num_chunks);
  StepStopwatch times(rank.device);
  const auto on_loss = [](std::size_t, const StepOutput& output) {
    return at::ones({}, output.root.options());
  };
  for (int round = 0; round < kNumRepetitions; ++round) {
    weights.zero_gradients();
    run_schedule(schedule, {*model, weights, rank.pp},
                 {.batch = batch, .training = true, .on_loss = on_loss, .listener = &times});
  }
  return times;
}

StageCost& operator+=(StageCost& a, const StageCost& b) {
  a.forward_s += b.forward_s;
  a.backward_input_s += b.backward_input_s;
  a.backward_weight_s += b.backward_weight_s;
  return a;
}

/// Returns the sum of the activations of layers first … first + count.
double layer_activations(const LayerTimes& times, const TransformerConfig& model,
                         std::int64_t first, std::int64_t count) {
  double sum = 0;
  for (std::int64_t layer = first; layer < first + count; ++layer)
    sum += times.layers.of(model.kind(layer)).activation;
  return sum;
}

}  // namespace

LayerTimes measure_layers(const Settings& settings, const ModelFamily& family, const Rank& rank,
                          const ActivationPlan* activations) {
  const std::vector<std::int64_t> layers = measured_layers(*settings.model);
  const PipelineLayout layout = parts_layout(layers);
  const StepStopwatch times =
      measure_parts(settings, family, single_rank(rank), layout, activations);
  std::vector<double> numbers;
  for (std::int32_t chunk = 0; chunk < layout.num_chunks; ++chunk) {
    for (const StepKind kind :
         {StepKind::forward, StepKind::backward_input, StepKind::backward_weight})
      numbers.push_back(times.of(chunk, kind));
  }
  LayerTraces traces(family);  // what a rank keeps depends on its stage if weights are frozen
  for (const std::int64_t layer : layers)
    numbers.push_back(traces.of(settings, rank, layer).kept_bytes());
  numbers.push_back(measure_p2p_seconds(settings, rank));
  const std::vector<double> all =
      broadcast_numbers({rank.world, rank.device}, std::move(numbers), "measured times");
  const auto part = [&](std::size_t index) {
    return StageCost{.forward_s = all[3 * index],
                     .backward_input_s = all[3 * index + 1],
                     .backward_weight_s = all[3 * index + 2]};
  };
  LayerTimes result{.embedding = part(0),
                    .output = part(layers.size() + 1),
                    .layers = {},
                    .message_s = all.back()};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    StageCost& layer = result.layers[settings.model->kind(layers[i])];
    layer = part(i + 1);
    layer.activation = all[3 * static_cast<std::size_t>(layout.num_chunks) + i];
  }
  return result;
}

LayerCosts layer_costs(const LayerTimes& times, const TransformerConfig& model) {
  double layers_s = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    layers_s += times.layers.of(model.kind(layer)).total_s();
  double depth_s = 0;
  for (std::int64_t i = 0; i < model.mtp_depth_layers; ++i)
    depth_s += times.layers.of(model.kind(model.num_layers + i)).total_s();
  const double depths = static_cast<double>(model.mtp_num_layers);
  return {.embedding_s = times.embedding.total_s(),
          .layer_s = layers_s / static_cast<double>(model.num_layers),
          .output_s = (1 + depths) * times.output.total_s() +
                      depths * (times.embedding.total_s() + depth_s)};
}

CostModel stage_costs(const LayerTimes& times, const PipelineLayout& layout,
                      const TransformerConfig& model) {
  const double share = layer_activations(times, model, 0, model.num_all_layers()) /
                       static_cast<double>(layout.num_ranks);
  CostModel costs{.message_s = times.message_s};
  for (const StageLayers& stage : layout.stages) {
    StageCost cost = kNoCost;
    for (std::int64_t i = 0; i < stage.num_layers; ++i)
      cost += times.layers.of(model.kind(stage.first_layer + i));
    for (std::int64_t i = 0; i < stage.num_embeddings(model); ++i) cost += times.embedding;
    for (std::int64_t head = 0; head <= model.mtp_num_layers && stage.has_output; ++head)
      cost += times.output;
    cost.activation = cost.weight_gradient =
        layer_activations(times, model, stage.first_layer, stage.num_layers) / share;
    costs.stages.push_back(cost);
  }
  return costs;
}

std::string describe(const LayerTimes& times) {
  const auto part = [](std::string_view name, const StageCost& cost) {
    return std::string(name) + format(" %.3g / %.3g / %.3g", cost.forward_s * 1e3,
                                      cost.backward_input_s * 1e3, cost.backward_weight_s * 1e3);
  };
  std::string text =
      "measured F / B / W of a microbatch (ms): " + part("embedding", times.embedding) + ", ";
  for (const auto& [kind, cost] : times.layers.entries) {
    const std::string_view words = words_of(kind);
    text += part(words == "dense layer" ? "layer" : words, cost) + ", ";
  }
  return text + part("output", times.output) + format("; message %.3g", times.message_s * 1e3);
}

}  // namespace megatron
