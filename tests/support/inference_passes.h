// Passes of inference as tests need them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/pass.h"

namespace megatron {

/// Caches of a number of sequences.
struct OwnedCaches {
  explicit OwnedCaches(std::int64_t count = 1) : sequences(static_cast<std::size_t>(count)) {
    for (SequenceCache& sequence : sequences) caches.push_back(&sequence);
  }
  std::vector<SequenceCache> sequences;
  Caches caches;
};

/// Returns tokens [b, s] as a microbatch of b packed sequences, or of b samples when not `packed`.
inline Microbatch tokens_of(const at::Tensor& tokens, bool packed) {
  Microbatch microbatch{.tensors = {{"tokens", tokens}}, .sample_ordinals = {}};
  if (!packed || tokens.size(0) == 1) return microbatch;
  microbatch.tensors["tokens"] = tokens.reshape({1, -1});
  microbatch.packed.emplace();
  for (std::int64_t i = 0; i <= tokens.size(0); ++i)
    microbatch.packed->cu_seqlens.push_back(i * tokens.size(1));
  return microbatch;
}

/// Returns the logits [b, s, vocabulary] of tokens [b, s], or [b, 1, vocabulary] of their last
/// ones. `model` is a Model or a ModelRunner.
template <class Inference>
at::Tensor model_logits(Inference& model, const at::Tensor& tokens,
                        const OwnedCaches* caches = nullptr, Wants wants = Wants::logits) {
  const Microbatch microbatch = tokens_of(tokens, caches != nullptr);
  return model
      .infer({.microbatch = microbatch,
              .wants = wants,
              .caches = caches != nullptr ? &caches->caches : nullptr})
      .reshape({tokens.size(0), -1, model.config().vocab_size});
}

}  // namespace megatron
