// Recomputation of a part of the model that depends on a ForwardContext.
#pragma once

#include <utility>

#include "megatron/nn/forward_context.h"
#include "megatron/ops/recompute.h"

namespace megatron {

/// Returns forward(input, context) and keeps the input only (recomputed()). In the second run, the
/// hooks of `context` do not see the ops again. Everything that `forward` captures must outlive
/// backward.
template <class Forward>
at::Tensor recomputed_block(const at::Tensor& input, const ForwardContext& context, Forward forward,
                            const RecomputeOptions& options = {}) {
  return recomputed(
      input,
      [context, forward = std::move(forward)](const at::Tensor& x, ForwardReplay& replay) {
        ForwardContext own = context;
        own.replay = &replay;
        // What is recomputed is not offloaded.
        own.offload = nullptr;
        own.offloaded_parts = nullptr;
        if (replay.is_second_run() && own.hooks != nullptr) own.hooks = &own.hooks->in_second_run();
        return forward(x, own);
      },
      options);
}

}  // namespace megatron
