// Models and layers on tensor-parallel ranks, as threads of this process.
#pragma once

#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "megatron/models/gpt_model.h"
#include "megatron/parallel/rank_threads.h"
#include "support/global_tensor.h"

namespace megatron {

struct TensorLayout {
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  TensorParallelOptions options = {};

  std::string name() const {
    return "tp" + std::to_string(tp) + (sequence_parallel ? "_sp" : "") + (options.overlap_chunks > 1 ? "_chunks" : "") +
           (options.async_allreduce ? "" : "_no_async");
  }
};

/// The rank that `communicators` speak for, in a world of tensor-parallel ranks only.
inline Rank tensor_rank(const TensorLayout& layout, Communicators& communicators) {
  Rank rank;
  rank.index = communicators.rank();
  std::vector<std::int64_t> all(static_cast<std::size_t>(layout.tp));
  std::iota(all.begin(), all.end(), 0);
  rank.tp = {.name = "tp", .rank = rank.index, .size = layout.tp, .comm = communicators.group(all, "tp")};
  rank.sequence_parallel = layout.sequence_parallel;
  rank.tp_options = layout.options;
  return rank;
}

/// Runs `body` on every rank of `layout`.
inline void on_tensor_ranks(const TensorLayout& layout, const std::function<void(const Rank&, Communicators&)>& body) {
  run_rank_threads(layout.tp, [&](Communicators& communicators) { body(tensor_rank(layout, communicators), communicators); },
                   {.timeout = std::chrono::milliseconds(20'000)});
}

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

/// One training step's loss and gradients of a GPT drawn with a fixed seed.
inline GptResult run_gpt(const TransformerConfig& config, const Microbatch& microbatch, const GptRun& run) {
  GptResult result;
  GlobalTensors weights, gradients;
  on_tensor_ranks(run.layout, [&](const Rank& rank, Communicators&) {
    const auto model = make_gpt_model(config, rank, run.vocab_pad_multiple);
    ParamStore store(*model, run.store);
    store.initialize(3);
    disturb(store, run.disturbance);
    store.begin_gradients();
    const StepOutput output = model->forward_step(microbatch, /*training=*/true);
    (output.loss_sum / output.count.to(output.loss_sum.scalar_type())).backward();
    store.finish_gradients();
    sum_gradient_parts(store);
    for (const Parameter* parameter : store.parameters()) {
      weights.put(*parameter, parameter->value());
      gradients.put(*parameter, parameter->grad());
    }
    if (rank.index != 0) return;
    result.loss = (output.loss_sum / output.count).item<double>();
    result.token_losses = output.token_losses;
  });
  result.weights = weights.take();
  result.gradients = gradients.take();
  return result;
}

}  // namespace megatron
