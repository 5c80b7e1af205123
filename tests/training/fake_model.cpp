#include "training/fake_model.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace megatron::testing_models {

FakeModel::FakeModel(std::int64_t vocabulary) : Model(nullptr, "") {
  config_.vocab_size = vocabulary;
  weight_ = &declare(
      "decoder.weight",
      {.sharding = Sharding::replicated({vocabulary}), .init = Init::zeros(), .tags = {}}, Axis{});
}

StageOutput FakeModel::forward_chunk(std::int64_t, const Pass& pass, const Activations&) {
  const Microbatch& microbatch = pass.microbatch;
  if (pass.training) seen_ordinals.push_back(microbatch.sample_ordinals);
  const at::Tensor mask = microbatch.at("loss_mask");
  const at::Tensor error =
      tracked(*weight_).index({microbatch.at("tokens")}) - microbatch.at("labels");
  at::Tensor losses = 0.5 * error * error;
  if (microbatch.has("poison"))
    losses = losses +
             microbatch.at("poison") * tracked(*weight_).index({microbatch.at("tokens")}).sqrt();
  return {.activations = {},
          .loss = StepOutput::of(kLanguageModelLoss, (losses * mask).sum(), mask.sum(), losses)};
}

at::Tensor FakeOptimizer::loss_scale() const { return at::ones({}, at::kDouble); }

void FakeOptimizer::queue_step(const StepOptions& options) {
  result_ = {};
  if (options.found_inf.defined() && options.found_inf.item<double>() != 0) result_.applied = false;
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

at::Tensor FakeOptimizer::step_stats() const { return at::zeros({0}, at::kDouble); }

Microbatch microbatch(const std::vector<std::int64_t>& tokens, const std::vector<float>& labels,
                      const std::vector<float>& mask) {
  return {.tensors = {{"tokens", at::tensor(tokens).unsqueeze(0)},
                      {"labels", at::tensor(labels).unsqueeze(0)},
                      {"loss_mask", at::tensor(mask).unsqueeze(0)}},
          .sample_ordinals = {}};
}

}  // namespace megatron::testing_models
