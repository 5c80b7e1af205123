// A model whose gradients are known by hand: one weight per token, loss Σ mask·½(w[token] −
// label)², gradient Σ mask·(w[token] − label). The tensor "poison" of zeros adds 0·√w: the loss
// stays the same, and at w = 0 the gradient is 0·∞ = NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"
#include "megatron/training/loop/trainer.h"

namespace megatron::testing_models {

class FakeModel : public Model {
 public:
  explicit FakeModel(std::int64_t vocabulary);
  const TransformerConfig& config() const override { return config_; }
  StageOutput forward_chunk(std::int64_t, const Pass& pass, const Activations&) override;

  std::vector<at::Tensor> seen_ordinals;

 private:
  TransformerConfig config_;
  Parameter* weight_ = nullptr;
};

/// Plain gradient descent that skips non-finite gradients, as the interface requires.
class FakeOptimizer : public Optimizer {
 public:
  explicit FakeOptimizer(ParamStore& store) : main_(store) {}
  at::Tensor loss_scale() const override;
  void queue_step(const StepOptions& options) override;
  at::Tensor step_stats() const override;
  StepResult result(const double* /*step_stats*/) const override { return result_; }
  MainParameters& main_parameters() override { return main_; }
  void visit_state(const OptimizerState::Visitor&) override {}
  void list_state(const OptimizerState::Lister&) override {}
  const std::vector<std::string>& state_tensors() const override { return state_tensors_; }
  std::int64_t num_state_bytes() const override { return 0; }
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
Microbatch microbatch(const std::vector<std::int64_t>& tokens, const std::vector<float>& labels,
                      const std::vector<float>& mask);

}  // namespace megatron::testing_models
