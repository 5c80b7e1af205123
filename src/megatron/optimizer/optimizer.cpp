// AdamW and SGD with momentum over the parameters of a store. A step makes one pass over the
// gradients for their norm and one pass over all tensors for the update.
#include "megatron/optimizer/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <numeric>

#include "megatron/optimizer/check_optimizer_config.h"
#include "megatron/optimizer/copy_to_device.h"
#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/optimizer/update_chunks.h"

namespace megatron {
namespace {

constexpr std::int64_t kNumScalars = sizeof(kernels::StepScalars) / sizeof(double);

class ScopedTimer {
 public:
  ScopedTimer(StepTimers* timers, const char* name) : timers_(timers), name_(name) {
    if (timers_ != nullptr) timers_->begin(name_);
  }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;
  ~ScopedTimer() {
    if (timers_ != nullptr) timers_->end(name_);
  }

 private:
  StepTimers* timers_;
  const char* name_;
};

kernels::StepRules step_rules(const OptimizerConfig& config, const LossScaling& scaling) {
  return {
      .rule = config.optimizer == "adam" ? kernels::UpdateRule::adamw : kernels::UpdateRule::sgd,
      .clip_grad = config.clip_grad,
      .beta1 = config.adam_beta1,
      .beta2 = config.adam_beta2,
      .eps = config.adam_eps,
      .momentum = config.sgd_momentum,
      .dynamic_loss_scale = scaling.is_dynamic,
      .min_loss_scale = scaling.min,
      .loss_scale_window = static_cast<double>(scaling.window),
      .hysteresis = static_cast<double>(scaling.hysteresis)};
}

class FusedOptimizer final : public Optimizer {
 public:
  FusedOptimizer(const OptimizerConfig& config, ParamStore& store, const LossScaling& scaling)
      : main_(store),
        operations_(optimizer_operations(store.device())),
        states_(make_states(config, store, main_)) {
    kernels::StepScalars start;
    start.loss_scale = scaling.initial;
    start.hysteresis_tracker = static_cast<double>(scaling.hysteresis);
    scalars_ =
        at::empty({kNumScalars}, at::TensorOptions().dtype(at::kDouble).device(store.device()));
    write(start);
    const std::vector<kernels::UpdateChunk> chunks =
        make_update_chunks(config, store, main_, states_);
    table_ = copy_to_device(chunks, store.device());
    plan_ = {.chunks = static_cast<const kernels::UpdateChunk*>(table_.const_data_ptr()),
             .num_chunks = static_cast<std::int64_t>(chunks.size()),
             .types = update_types(store, main_, states_),
             .rules = step_rules(config, scaling),
             .table = {},
             .sums = nullptr,
             .parameter_sums = nullptr,
             .scalars = static_cast<kernels::StepScalars*>(scalars_.mutable_data_ptr())};
    main_.sums().fill(plan_);
  }

  at::Tensor loss_scale() const override {
    return scalars_[offsetof(kernels::StepScalars, loss_scale) / sizeof(double)];
  }

  void queue_step(const StepOptions& options) override {
    main_.wait_all_gather_params();  // all-gathers of weights that no layer has read may be pending
    {
      const ScopedTimer phase(options.timers, "optimizer-unscale-and-check-inf");
      main_.sums().run(operations_.sum_squares, plan_);
    }
    {
      const ScopedTimer phase(options.timers, "optimizer-clip-main-grad");
      const double* found_inf = options.found_inf.defined()
                                    ? static_cast<const double*>(options.found_inf.const_data_ptr())
                                    : nullptr;
      operations_.finalize(plan_, {.lr = {options.lr, options.decoupled_lr.value_or(options.lr)},
                                   .weight_decay = options.weight_decay,
                                   .found_inf = found_inf});
    }
    if (options.count_zeros) {
      const ScopedTimer phase(options.timers, "optimizer-count-zeros");
      main_.sums().run(operations_.count_zeros, plan_);
      operations_.finalize_zeros(plan_);
    }
    {
      const ScopedTimer phase(options.timers, "optimizer-inner-step");
      operations_.update(plan_);
    }
    const ScopedTimer phase(options.timers, "params-all-gather");
    main_.all_gather_params();
  }

  at::Tensor step_stats() const override { return scalars_; }

  std::vector<std::string> state_names() const override {
    std::vector<std::string> names;
    for (const OptimizerState& state : states_) names.push_back(state.name());
    return names;
  }
  std::int64_t num_state_bytes() const override {
    return std::accumulate(
        states_.begin(), states_.end(), std::int64_t{0},
        [](std::int64_t bytes, const OptimizerState& state) { return bytes + state.num_bytes(); });
  }

  StepResult result(const double* step_stats) const override {
    const auto& stats = *reinterpret_cast<const kernels::StepScalars*>(step_stats);
    StepResult result{.applied = stats.applied != 0,
                      .grad_norm = stats.grad_norm,
                      .num_zeros = static_cast<std::int64_t>(stats.num_zeros),
                      .non_finite_parameter = {},
                      .loss_scale = stats.loss_scale};
    if (stats.first_non_finite >= 0)
      result.non_finite_parameter =
          main_.sums().names()[static_cast<std::size_t>(stats.first_non_finite)];
    return result;
  }

  MainParameters& main_parameters() override { return main_; }

  void visit_state(const OptimizerState::Visitor& visitor) override {
    for (OptimizerState& state : states_) state.visit(visitor);
  }

  std::int64_t num_steps() const override { return static_cast<std::int64_t>(read().num_steps); }
  void set_num_steps(std::int64_t steps) override {
    kernels::StepScalars scalars = read();
    scalars.num_steps = static_cast<double>(steps);
    write(scalars);
  }

  std::optional<LossScaleState> loss_scale_state() const override {
    if (!plan_.rules.dynamic_loss_scale) return std::nullopt;
    const kernels::StepScalars scalars = read();
    return LossScaleState{scalars.loss_scale, static_cast<std::int64_t>(scalars.growth_tracker),
                          static_cast<std::int64_t>(scalars.hysteresis_tracker)};
  }
  void set_loss_scale_state(const LossScaleState& state) override {
    if (!plan_.rules.dynamic_loss_scale) return;
    kernels::StepScalars scalars = read();
    scalars.loss_scale = state.scale;
    scalars.growth_tracker = static_cast<double>(state.growth_tracker);
    scalars.hysteresis_tracker = static_cast<double>(state.hysteresis_tracker);
    write(scalars);
  }

 private:
  kernels::StepScalars read() const {
    return *static_cast<const kernels::StepScalars*>(scalars_.cpu().const_data_ptr());
  }
  void write(kernels::StepScalars scalars) {
    scalars_.copy_(at::from_blob(&scalars, {kNumScalars}, at::TensorOptions().dtype(at::kDouble)));
  }

  MainParameters main_;
  const kernels::OptimizerOperations& operations_;
  std::vector<OptimizerState> states_;
  at::Tensor scalars_, table_;
  kernels::UpdatePlan plan_{};
};

}  // namespace

StepResult Optimizer::step(const StepOptions& options) {
  queue_step(options);
  const at::Tensor stats = step_stats().cpu();
  return result(stats.const_data_ptr<double>());
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling) {
  check_optimizer_config(config);
  return std::make_unique<FusedOptimizer>(config, store, scaling);
}

}  // namespace megatron
