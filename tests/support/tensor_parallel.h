// Runs a training step of a GPT on tensor-parallel ranks and returns its gradients as one rank
// would hold them.
#pragma once

#include <ATen/TensorOperators.h>

#include <map>
#include <string>

#include "megatron/parallel/rank.h"
#include "support/global_tensor.h"
#include "support/gpt_model.h"
#include "support/tensor_ranks.h"

namespace megatron {

struct TransformerConfig;

struct GptResult {
  double loss = 0;
  at::Tensor token_losses;
  std::map<std::string, at::Tensor> weights, gradients;
};

struct GptRun {
  TensorLayout layout = {};
  ParamStore::Options store = {.dtype = at::kDouble};
  double disturbance = 0.1;
  std::int64_t vocab_pad_multiple = 8;
};

/// Returns the loss and gradients of one training step of a GPT with a fixed seed.
inline GptResult run_gpt(const TransformerConfig& config, const Microbatch& microbatch,
                         const GptRun& run) {
  GptResult result;
  GlobalTensors weights, gradients;
  on_tensor_ranks(run.layout, [&](const Rank& rank, Communicators&) {
    const auto model = make_gpt_model(config, rank, run.vocab_pad_multiple);
    ParamStore store(declared_parameters(*model), run.store);
    store.initialize(3);
    disturb(store, run.disturbance);
    store.zero_gradients();
    const StepOutput output = model->forward_step(microbatch, /*training=*/true);
    (output.root / output.count.to(output.root.scalar_type())).backward();
    store.finalize_gradients();
    for (const Parameter* parameter : store.parameters()) {
      weights.put(*parameter, parameter->value());
      gradients.put(*parameter, parameter->grad());
    }
    if (rank.index != 0) return;
    result.loss = (output.root / output.count).item<double>();
    result.token_losses = output.token_losses;
  });
  result.weights = weights.take();
  result.gradients = gradients.take();
  return result;
}

}  // namespace megatron
