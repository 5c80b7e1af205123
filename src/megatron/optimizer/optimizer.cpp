#include "megatron/optimizer/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/elementwise_rule.h"
#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

using UpdateRules = std::vector<std::unique_ptr<UpdateRule>>;

/// Returns the rule of a trained parameter, of which there must be exactly one.
UpdateRule& rule_of(const Parameter& parameter, const UpdateRules& rules) {
  UpdateRule* found = nullptr;
  for (const auto& rule : rules) {
    if (!rule->updates(parameter)) continue;
    MEGATRON_CHECK(found == nullptr, "two update rules for ", parameter.name());
    found = rule.get();
  }
  MEGATRON_CHECK(found != nullptr, "no update rule for ", parameter.name());
  return *found;
}

/// Returns the names of the state of the whole model. A rank holds only a part of the parameters.
std::vector<std::string> all_state_tensors(const ParamStore& store, const UpdateRules& rules) {
  std::vector<std::string> mine;
  for (const Parameter* parameter : store.parameters()) {
    if (!parameter->is_trained()) continue;
    for (const OptimizerState& state : rule_of(*parameter, rules).states())
      mine.push_back(state.name() + "." + parameter->name());
  }
  return all_gather_unique_names({store.model_axis(), store.device()}, mine);
}

constexpr std::int64_t kNumScalars = sizeof(kernels::StepScalars) / sizeof(double);

kernels::StepRules step_rules(double clip_grad, const LossScaling& scaling) {
  return {.clip_grad = clip_grad,
          .dynamic_loss_scale = scaling.is_dynamic,
          .min_loss_scale = scaling.min,
          .loss_scale_window = static_cast<double>(scaling.window),
          .hysteresis = static_cast<double>(scaling.hysteresis)};
}

/// The scalars of the step live on the device, which decides whether it is applied; the host reads
/// them once, after the step.
class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(const OptimizerConfig& config, ParamStore& store, const LossScaling& scaling,
                const MakeUpdateRules& make_rules, const StateOffloadOptions& offload)
      : main_(store, offload),
        operations_(optimizer_operations(store.device())),
        step_rules_(step_rules(config.clip_grad, scaling)),
        scalars_(at::empty({kNumScalars},
                           at::TensorOptions().dtype(at::kDouble).device(store.device()))) {
    kernels::StepScalars start;
    start.loss_scale = scaling.initial;
    start.hysteresis_tracker = static_cast<double>(scaling.hysteresis);
    write(start);
    plan_ = main_.sums().plan(piece_gradients(store), table_);
    rules_ = make_rules(store, main_);
    state_tensors_ = all_state_tensors(store, rules_);
  }

  at::Tensor loss_scale() const override {
    return scalars_[offsetof(kernels::StepScalars, loss_scale) / sizeof(double)];
  }

  void queue_step(const StepOptions& options) override {
    main_.wait_all_gather_params();  // all-gathers of weights that no layer has read may be pending
    prepare_scalars(options);
    {
      const PhaseTimer phase(options.timers, "optimizer-inner-step");
      for (const auto& rule : rules_) rule->update(scalars_on_device());
    }
    const PhaseTimer phase(options.timers, "params-all-gather");
    main_.all_gather_params();
  }

  at::Tensor step_stats() const override { return scalars_; }
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

  const std::vector<std::string>& state_tensors() const override { return state_tensors_; }
  void visit_state(const OptimizerState::Visitor& visitor) override {
    for (const auto& rule : rules_)
      for (OptimizerState& state : rule->states()) state.visit(visitor);
  }
  void list_state(const OptimizerState::Lister& lister) override {
    for (const auto& rule : rules_)
      for (OptimizerState& state : rule->states()) state.list(lister);
  }
  std::int64_t num_state_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto& rule : rules_)
      for (const OptimizerState& state : rule->states()) bytes += state.num_bytes();
    return bytes;
  }

  std::int64_t num_steps() const override { return static_cast<std::int64_t>(read().num_steps); }
  void set_num_steps(std::int64_t steps) override {
    kernels::StepScalars scalars = read();
    scalars.num_steps = static_cast<double>(steps);
    write(scalars);
  }
  std::optional<LossScaleState> loss_scale_state() const override {
    if (!step_rules_.dynamic_loss_scale) return std::nullopt;
    const kernels::StepScalars scalars = read();
    return LossScaleState{scalars.loss_scale, static_cast<std::int64_t>(scalars.growth_tracker),
                          static_cast<std::int64_t>(scalars.hysteresis_tracker)};
  }
  void set_loss_scale_state(const LossScaleState& state) override {
    if (!step_rules_.dynamic_loss_scale) return;
    kernels::StepScalars scalars = read();
    scalars.loss_scale = state.scale;
    scalars.growth_tracker = static_cast<double>(state.growth_tracker);
    scalars.hysteresis_tracker = static_cast<double>(state.hysteresis_tracker);
    write(scalars);
  }

 private:
  /// Queues what comes before the update rules: statistics of the finished gradients (non-finite
  /// ones, norm), whether the step is applied, the factor that unscales and clips, and the next
  /// loss scale. Collective over the shard and model axes of the store's groups().
  void prepare_scalars(const StepOptions& options) {
    const ParameterSums& sums = main_.sums();
    {
      const PhaseTimer phase(options.timers, "optimizer-unscale-and-check-inf");
      sums.run(operations_.sum_squares, plan_);
    }
    {
      const PhaseTimer phase(options.timers, "optimizer-clip-main-grad");
      const double* found_inf = options.found_inf.defined()
                                    ? static_cast<const double*>(options.found_inf.const_data_ptr())
                                    : nullptr;
      operations_.finalize(plan_, step_rules_,
                           {.lr = {options.lr, options.decoupled_lr.value_or(options.lr)},
                            .weight_decay = options.weight_decay,
                            .found_inf = found_inf},
                           scalars_on_device());
    }
    if (!options.count_zeros) return;
    const PhaseTimer phase(options.timers, "optimizer-count-zeros");
    sums.run(operations_.count_zeros, plan_);
    operations_.finalize_zeros(plan_, scalars_on_device());
  }

  kernels::StepScalars* scalars_on_device() const {
    return static_cast<kernels::StepScalars*>(scalars_.mutable_data_ptr());
  }
  kernels::StepScalars read() const {
    return *static_cast<const kernels::StepScalars*>(scalars_.cpu().const_data_ptr());
  }
  void write(kernels::StepScalars scalars) {
    scalars_.copy_(at::from_blob(&scalars, {kNumScalars}, at::TensorOptions().dtype(at::kDouble)));
  }

  MainParameters main_;
  const kernels::OptimizerOperations& operations_;
  const kernels::StepRules step_rules_;
  at::Tensor scalars_, table_;
  kernels::StatisticsPlan plan_{};
  UpdateRules rules_;
  std::vector<std::string> state_tensors_;
};

}  // namespace

StepResult Optimizer::step(const StepOptions& options) {
  queue_step(options);
  const at::Tensor stats = step_stats().cpu();
  return result(stats.const_data_ptr<double>());
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling,
                                          const StateOffloadOptions& offload) {
  return make_optimizer(
      config, store, scaling,
      [&](const ParamStore& weights, const MainParameters& main) {
        MEGATRON_CHECK(config.optimizer == "adam" || config.optimizer == "sgd",
                       "there is no optimizer ", config.optimizer);
        UpdateRules rules;
        rules.push_back(config.optimizer == "adam" ? make_adamw(config, weights, main)
                                                   : make_sgd(config, weights, main));
        return rules;
      },
      offload);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, ParamStore& store,
                                          const LossScaling& scaling,
                                          const MakeUpdateRules& make_rules,
                                          const StateOffloadOptions& offload) {
  return std::make_unique<RuleOptimizer>(config, store, scaling, make_rules, offload);
}

}  // namespace megatron
