#include "megatron/optimizer/optimizer.h"

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/elementwise_rule.h"
#include "megatron/optimizer/step_controller.h"
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

class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(const OptimizerConfig& config, ParamStore& store, const LossScaling& scaling,
                const MakeUpdateRules& make_rules, const StateOffloadOptions& offload)
      : main_(store, offload),
        controller_(store, main_.sums(), config.clip_grad, scaling),
        rules_(make_rules(store, main_)),
        state_tensors_(all_state_tensors(store, rules_)) {}

  at::Tensor loss_scale() const override { return controller_.loss_scale(); }

  void queue_step(const StepOptions& options) override {
    main_.wait_all_gather_params();  // all-gathers of weights that no layer has read may be pending
    controller_.begin_step(options);
    {
      const PhaseTimer phase(options.timers, "optimizer-inner-step");
      for (const auto& rule : rules_) rule->update(controller_.scalars());
    }
    const PhaseTimer phase(options.timers, "params-all-gather");
    main_.all_gather_params();
  }

  at::Tensor step_stats() const override { return controller_.step_stats(); }
  StepResult result(const double* step_stats) const override {
    return controller_.result(step_stats);
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
  std::int64_t num_offloaded_bytes() const override {
    std::int64_t bytes = main_.offloaded() == nullptr ? 0 : main_.offloaded()->num_bytes();
    for (const auto& rule : rules_) {
      for (const OptimizerState& state : rule->states())
        bytes += state.offloaded() == nullptr ? 0 : state.offloaded()->num_bytes();
    }
    return bytes;
  }
  std::int64_t num_state_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto& rule : rules_)
      for (const OptimizerState& state : rule->states()) bytes += state.num_bytes();
    return bytes;
  }

  std::int64_t num_steps() const override { return controller_.num_steps(); }
  void set_num_steps(std::int64_t steps) override { controller_.set_num_steps(steps); }
  std::optional<LossScaleState> loss_scale_state() const override {
    return controller_.loss_scale_state();
  }
  void set_loss_scale_state(const LossScaleState& state) override {
    controller_.set_loss_scale_state(state);
  }

 private:
  MainParameters main_;
  StepController controller_;
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
