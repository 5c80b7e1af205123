// A pipeline whose stages only sleep, for measuring a schedule with given times on real ranks with
// real messages.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/step_recorder.h"

namespace megatron {

/// Tracks what a rank's graphs and deferred gradients hold, in the unit of StageCost.
class HeldActivations {
 public:
  /// Counts `amount` until the last copy of the result is destroyed.
  std::shared_ptr<void> hold(double amount) {
    now_ += amount;
    peak_ = std::max(peak_, now_);
    return {this, [amount](HeldActivations* held) { held->now_ -= amount; }};
  }
  double peak() const { return peak_; }

 private:
  double now_ = 0, peak_ = 0;
};

/// Sleeps until an absolute deadline, so that a late wake-up is the only error.
inline void sleep_for(double seconds) {
  const double end = monotonic_seconds() + seconds;
  const auto whole = static_cast<time_t>(end);
  const timespec deadline{whole, static_cast<long>((end - static_cast<double>(whole)) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) != 0) {
  }
}

/// Sleeps and holds activations in place of a stage's computation.
inline at::Tensor sleeping_stage(const at::Tensor& x, Parameter* weight, HeldActivations* held,
                                 const StageCost& cost) {
  Recording recording({.name = "SleepingStageBackward", .trains_parameters = true}, {x});
  std::shared_ptr<void> for_input = held->hold(cost.activation - cost.weight_gradient),
                        for_weight = held->hold(cost.weight_gradient);
  sleep_for(cost.forward_s);
  return recording.finish(x.clone(), {},
                          [=, for_input = std::move(for_input), for_weight = std::move(for_weight)](
                              BackwardPass& pass) mutable -> Tensors {
                            sleep_for(cost.backward_input_s);
                            weight->contribute([seconds = cost.backward_weight_s,
                                                kept = for_weight](at::Tensor& grad, bool fresh) {
                              sleep_for(seconds);
                              fresh ? grad.zero_() : grad.add_(1);
                            });
                            for_input.reset();
                            for_weight.reset();
                            return {pass.gradients[0]};
                          });
}

/// The chunks of one rank.
class SleepingModel : public Model {
 public:
  SleepingModel(const Schedule& schedule, const CostModel& costs, std::int64_t rank)
      : Model(nullptr, ""), schedule_(schedule), rank_(rank) {
    for (std::int64_t chunk = 0; chunk < schedule.num_chunks; ++chunk) {
      costs_.push_back(costs.stages[static_cast<std::size_t>(schedule.stage_of(rank, chunk))]);
      weights_.push_back(
          &declare("weight" + std::to_string(chunk),
                   {.sharding = Sharding::replicated({2}), .init = Init::zeros(), .tags = {}},
                   std::vector<Axis>{Axis{}}));
    }
  }
  const TransformerConfig& config() const override { return config_; }
  std::int64_t num_chunks() const override { return schedule_.num_chunks; }
  std::vector<ActivationSpec> input_specs(std::int64_t chunk, const Pass&) const override {
    return spec(stage(chunk) > 0);
  }
  std::vector<ActivationSpec> output_specs(std::int64_t chunk, const Pass&) const override {
    return spec(!is_last(chunk));
  }
  StageOutput forward_chunk(std::int64_t chunk, const Pass&, const Activations& in) override {
    const auto at = static_cast<std::size_t>(chunk);
    const at::Tensor x = in.empty() ? at::ones({2}).set_requires_grad(true) : in[0];
    const at::Tensor y = sleeping_stage(x, weights_[at], &held_, costs_[at]);
    if (!is_last(chunk)) return {.activations = {y}, .loss = {}};
    return {.activations = {}, .loss = StepOutput::of(kLanguageModelLoss, y.sum(), at::ones({}))};
  }
  const HeldActivations& held() const { return held_; }

 private:
  std::int64_t stage(std::int64_t chunk) const { return schedule_.stage_of(rank_, chunk); }
  bool is_last(std::int64_t chunk) const { return stage(chunk) + 1 == schedule_.num_stages(); }
  static std::vector<ActivationSpec> spec(bool exists) {
    return exists ? std::vector<ActivationSpec>{{.name = "hidden", .shape = {2}}}
                  : std::vector<ActivationSpec>{};
  }

  const Schedule& schedule_;
  std::int64_t rank_;
  TransformerConfig config_;
  std::vector<StageCost> costs_;
  std::vector<Parameter*> weights_;
  HeldActivations held_;
};

struct SleepingRun {
  StepTimes steps;                      ///< Per rank.
  PipelineTimes times;                  ///< Measured times.
  std::vector<double> peak_activation;  ///< Per rank, in the unit of StageCost.
};

/// Runs a schedule with messages on rank threads of this process. Every step sleeps for the time in
/// `costs`.
inline SleepingRun run_sleeping(const Schedule& schedule, const CostModel& costs) {
  const auto num_ranks = static_cast<std::size_t>(schedule.num_ranks);
  SleepingRun run{.steps = StepTimes(num_ranks),
                  .times = {},
                  .peak_activation = std::vector<double>(num_ranks)};
  std::vector<std::int64_t> all(num_ranks);
  std::iota(all.begin(), all.end(), 0);
  const auto one = [&](Communicators& communicators) {
    const std::int64_t rank = communicators.rank();
    const Axis pp{.name = "pp",
                  .rank = rank,
                  .size = schedule.num_ranks,
                  .comm = communicators.group(all, "pp")};
    SleepingModel model(schedule, costs, rank);
    ParamStore weights(declared_parameters(model), {});
    StepRecorder recorder(c10::kCPU);
    const std::vector<Microbatch> batch(static_cast<std::size_t>(schedule.num_microbatches));
    const auto on_loss = [](std::size_t, const StepOutput&) { return at::ones({}); };
    if (pp.comm) pp.comm->barrier("start");
    weights.zero_gradients();
    run_schedule(schedule, {model, weights, pp},
                 {.batch = batch, .training = true, .on_loss = on_loss, .listener = &recorder});
    weights.finalize_gradients();
    run.steps[static_cast<std::size_t>(rank)] = recorder.take();
    run.peak_activation[static_cast<std::size_t>(rank)] = model.held().peak();
  };
  run_rank_threads(schedule.num_ranks, one, {.timeout = std::chrono::milliseconds(20'000)});
  run.times = pipeline_times(run.steps);
  return run;
}

}  // namespace megatron
