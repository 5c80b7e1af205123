// A model whose gradients are known by hand: one weight per token, loss Σ mask·½(w[token] −
// label)², gradient Σ mask·(w[token] − label). The tensor "poison" of zeros adds 0·√w: the loss
// stays the same, and at w = 0 the gradient is 0·∞ = NaN.
#pragma once

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/language_model.h"
#include "megatron/training/loop/trainer.h"

namespace megatron::testing_models {

class FakeModel : public LanguageModel {
 public:
  explicit FakeModel(std::int64_t vocabulary) : LanguageModel(nullptr, "") {
    config_.vocab_size = vocabulary;
    weight_ = &declare(
        "decoder.weight",
        {.sharding = Sharding::replicated({vocabulary}), .init = Init::zeros(), .tags = {}},
        Axis{});
  }
  const TransformerConfig& config() const override { return config_; }
  StageOutput forward_chunk(std::int64_t, const Microbatch& microbatch, const Activations&,
                            bool training) override {
    if (training) seen_ordinals.push_back(microbatch.sample_ordinals);
    const at::Tensor mask = microbatch.at("loss_mask");
    const at::Tensor error =
        tracked(*weight_).index({microbatch.at("tokens")}) - microbatch.at("labels");
    at::Tensor losses = 0.5 * error * error;
    if (microbatch.has("poison"))
      losses = losses +
               microbatch.at("poison") * tracked(*weight_).index({microbatch.at("tokens")}).sqrt();
    return {.activations = {},
            .loss = StepOutput{.loss_sum = (losses * mask).sum(),
                               .count = mask.sum(),
                               .token_losses = losses.detach(),
                               .sums = {}}};
  }
  at::Tensor logits(const at::Tensor&, std::int64_t, KvCache*, bool) override { return {}; }

  std::vector<at::Tensor> seen_ordinals;

 private:
  TransformerConfig config_;
  Parameter* weight_ = nullptr;
};

/// Plain gradient descent that skips non-finite gradients, as the interface requires.
class FakeOptimizer : public Optimizer {
 public:
  explicit FakeOptimizer(ParamStore& store) : main_(store) {}
  at::Tensor loss_scale() const override { return at::ones({}, at::kDouble); }
  void queue_step(const StepOptions& options) override {
    result_ = {};
    if (options.found_inf.defined() && options.found_inf.item<double>() != 0)
      result_.applied = false;
    for (const ParameterPiece& piece : main_.pieces()) {
      const Parameter* parameter = piece.parameter;
      if (parameter->grad().isfinite().all().item<bool>()) continue;
      result_ = {.applied = false, .non_finite_parameter = parameter->name()};
      return;
    }
    for (std::size_t i = 0; result_.applied && i < main_.tensors().size(); ++i) {
      const at::Tensor grad = main_.pieces()[i].of(main_.pieces()[i].parameter->grad());
      result_.grad_norm = grad.norm().item<double>();
      main_.tensors()[i].sub_(grad, options.lr);
    }
    steps_ += result_.applied;
  }
  at::Tensor step_stats() const override { return at::zeros({0}, at::kDouble); }
  StepResult result(const double* /*step_stats*/) const override { return result_; }
  MainParameters& main_parameters() override { return main_; }
  void visit_state(const OptimizerState::Visitor&) override {}
  void list_state(const OptimizerState::Lister&) override {}
  const std::vector<std::string>& state_tensors() const override { return state_tensors_; }
  std::int64_t num_state_bytes() const override { return 0; }
  std::int64_t num_offloaded_bytes() const override { return 0; }
  std::int64_t num_steps() const override { return steps_; }
  void set_num_steps(std::int64_t steps) override { steps_ = steps; }
  std::optional<LossScaleState> loss_scale_state() const override { return std::nullopt; }
  void set_loss_scale_state(const LossScaleState&) override {}

 private:
  MainParameters main_;
  StepResult result_;
  std::vector<std::string> state_tensors_;
  std::int64_t steps_ = 0;
};

/// Returns the listed microbatches in turn, repeatedly.
class ListSource : public MicrobatchSource {
 public:
  explicit ListSource(std::vector<Microbatch> list) : list_(std::move(list)) {}
  Microbatch next() override { return list_[taken++ % list_.size()]; }
  std::size_t taken = 0;

 private:
  std::vector<Microbatch> list_;
};

/// One sample of a microbatch: tokens, labels and mask of one sequence.
inline Microbatch microbatch(const std::vector<std::int64_t>& tokens,
                             const std::vector<float>& labels, const std::vector<float>& mask) {
  return {.tensors = {{"tokens", at::tensor(tokens).unsqueeze(0)},
                      {"labels", at::tensor(labels).unsqueeze(0)},
                      {"loss_mask", at::tensor(mask).unsqueeze(0)}},
          .sample_ordinals = {}};
}

}  // namespace megatron::testing_models
