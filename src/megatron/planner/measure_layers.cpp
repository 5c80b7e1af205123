#include "megatron/planner/measure_layers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "megatron/models/params_dtype.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/pipeline/run_schedule.h"

namespace megatron {
namespace {

constexpr int kNumRepetitions = 5;  ///< the first one is a warm-up
constexpr std::int64_t kParts = 3;

/// Returns embedding, one layer and output as three stages on one rank.
PipelineLayout parts_layout() {
  return {.num_ranks = 1,
          .num_chunks = kParts,
          .stages = {{.has_embedding = true},
                     {.first_layer = 0, .num_layers = 1},
                     {.first_layer = 1, .has_output = true}}};
}

/// Returns a schedule that runs F of every part, then B and W of each.
Schedule parts_schedule() {
  Schedule schedule{.name = "parts", .num_chunks = kParts, .ranks = {{}}};
  const auto add = [&](StepKind kind, std::int64_t chunk) {
    schedule.ranks[0].push_back({.kind = kind, .chunk = static_cast<std::int32_t>(chunk)});
  };
  for (std::int64_t chunk = 0; chunk < kParts; ++chunk) add(StepKind::forward, chunk);
  for (std::int64_t chunk = kParts; chunk-- > 0;) {
    add(StepKind::backward_input, chunk);
    add(StepKind::backward_weight, chunk);
  }
  return schedule;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void synchronize(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

double median(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers[numbers.size() / 2];
}

/// Records the time of every step of that schedule.
class StepStopwatch : public StepListener {
 public:
  explicit StepStopwatch(c10::Device device) : device_(device) {}
  void begin(const ScheduleStep& /*step*/) override {
    synchronize(device_);
    begin_s_ = now_s();
  }
  void end(const ScheduleStep& step) override {
    synchronize(device_);
    seconds_[{step.chunk, step.kind}].push_back(now_s() - begin_s_);
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

Microbatch synthetic_microbatch(const Settings& settings, c10::Device device) {
  const std::int64_t samples = settings.training.micro_batch_size,
                     length = settings.training.seq_length;
  const auto ids = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor tokens = at::arange(samples * length, ids)
                                .remainder(settings.model.vocab_size)
                                .view({samples, length});
  Microbatch microbatch;
  microbatch.tensors = {{"tokens", tokens},
                        {"labels", tokens},
                        {"position_ids", at::arange(length, ids).unsqueeze(0)},
                        {"loss_mask", at::ones({samples, length}, ids.dtype(at::kFloat))},
                        {"loss_gradient", at::ones({}, ids.dtype(at::kFloat))}};
  microbatch.sample_ordinals = at::arange(samples, ids);
  return microbatch;
}

/// Sends hidden states once around the ring of pipeline ranks, all ranks at the same time.
double measure_p2p_seconds(const Settings& settings, const Rank& rank) {
  const Axis& pp = rank.pp;
  if (pp.size == 1) return 0;
  const std::int64_t slices = rank.sequence_parallel ? rank.tp.size : 1;
  const std::vector<std::int64_t> shape{settings.training.seq_length / slices,
                                        settings.training.micro_batch_size,
                                        settings.model.hidden_size};
  const auto options =
      at::TensorOptions().dtype(params_dtype(settings.training)).device(rank.device);
  const at::Tensor out = at::zeros(shape, options), in = at::empty(shape, options);
  std::vector<double> seconds;
  for (int round = 0; round < kNumRepetitions; ++round) {
    barrier(pp, "measured message");
    const double begin = now_s();
    const PendingWork sent = pp.comm->start_send(out, (pp.rank + 1) % pp.size, "measured message");
    pp.comm->recv(in, (pp.rank + pp.size - 1) % pp.size, "measured message");
    sent->wait();
    synchronize(rank.device);
    seconds.push_back(now_s() - begin);
  }
  return median(seconds);
}

/// Returns this rank without pipeline and data parallelism.
Rank single_rank(Rank rank) {
  rank.pp = Axis{"pp"};
  rank.dp = Axis{"dp"};
  rank.dp_cp = Axis{"dp-cp"};
  rank.model = rank.tp;
  rank.embedding = Axis{"embd"};
  return rank;
}

StepStopwatch measure_parts(const Settings& settings, const ModelFamily& family, const Rank& rank) {
  const PipelineLayout layout = parts_layout();
  const MakeModelOptions options{
      .vocab_pad_multiple = settings.tokenizer.make_vocab_size_divisible_by,
      .dtype = params_dtype(settings.training),
      .layout = &layout};
  const auto model = family.make(settings.model, rank, options);
  ParamStore weights(declared_parameters(*model),
                     {.device = rank.device, .dtype = options.dtype, .grad_dtype = at::kFloat});
  weights.initialize(rank.seed);
  const std::vector<Microbatch> batch{synthetic_microbatch(settings, rank.device)};
  const Schedule schedule = parts_schedule();
  StepStopwatch times(rank.device);
  const auto on_loss = [](std::size_t, const StepOutput& output) {
    return at::ones({}, output.loss_sum.options());
  };
  for (int round = 0; round < kNumRepetitions; ++round) {
    weights.zero_gradients();
    run_schedule(schedule, {*model, weights, rank.pp},
                 {.batch = batch, .training = true, .on_loss = on_loss, .listener = &times});
  }
  return times;
}

StageCost sum(const StageCost& a, const StageCost& b, double times) {
  return {.forward_s = a.forward_s + times * b.forward_s,
          .backward_input_s = a.backward_input_s + times * b.backward_input_s,
          .backward_weight_s = a.backward_weight_s + times * b.backward_weight_s,
          .activation = a.activation,
          .weight_gradient = a.weight_gradient};
}

constexpr StageCost kZeroCost{.forward_s = 0,
                              .backward_input_s = 0,
                              .backward_weight_s = 0,
                              .activation = 0,
                              .weight_gradient = 0};

double total(const StageCost& cost) {
  return cost.forward_s + cost.backward_input_s + cost.backward_weight_s;
}

}  // namespace

LayerTimes measure_layers(const Settings& settings, const ModelFamily& family, const Rank& rank) {
  const StepStopwatch times = measure_parts(settings, family, single_rank(rank));
  std::vector<double> numbers;
  for (std::int32_t chunk = 0; chunk < kParts; ++chunk) {
    for (const StepKind kind :
         {StepKind::forward, StepKind::backward_input, StepKind::backward_weight})
      numbers.push_back(times.of(chunk, kind));
  }
  numbers.push_back(measure_p2p_seconds(settings, rank));
  const std::vector<double> all =
      broadcast_numbers({rank.world, rank.device}, std::move(numbers), "measured times");
  const auto part = [&](std::size_t index) {
    return StageCost{.forward_s = all[3 * index],
                     .backward_input_s = all[3 * index + 1],
                     .backward_weight_s = all[3 * index + 2]};
  };
  return {.embedding = part(0), .layer = part(1), .output = part(2), .message_s = all[9]};
}

LayerCosts layer_costs(const LayerTimes& times) {
  return {.embedding_s = total(times.embedding),
          .layer_s = total(times.layer),
          .output_s = total(times.output)};
}

CostModel stage_costs(const LayerTimes& times, const PipelineLayout& layout) {
  std::int64_t num_layers = 0;
  for (const StageLayers& stage : layout.stages) num_layers += stage.num_layers;
  const double share = static_cast<double>(num_layers) / static_cast<double>(layout.num_ranks);
  CostModel costs{.message_s = times.message_s};
  for (const StageLayers& stage : layout.stages) {
    StageCost cost = sum(kZeroCost, times.layer, static_cast<double>(stage.num_layers));
    if (stage.has_embedding) cost = sum(cost, times.embedding, 1);
    if (stage.has_output) cost = sum(cost, times.output, 1);
    cost.activation = cost.weight_gradient = static_cast<double>(stage.num_layers) / share;
    costs.stages.push_back(cost);
  }
  return costs;
}

std::string describe(const LayerTimes& times) {
  char text[200];
  const auto ms = [](const StageCost& cost) {
    return std::array{cost.forward_s * 1e3, cost.backward_input_s * 1e3,
                      cost.backward_weight_s * 1e3};
  };
  const auto e = ms(times.embedding), l = ms(times.layer), o = ms(times.output);
  std::snprintf(text, sizeof(text),
                "measured F / B / W of a microbatch (ms): embedding %.3g / %.3g / %.3g, layer %.3g "
                "/ %.3g / %.3g, output %.3g / %.3g / %.3g; message %.3g",
                e[0], e[1], e[2], l[0], l[1], l[2], o[0], o[1], o[2], times.message_s * 1e3);
  return text;
}

}  // namespace megatron
