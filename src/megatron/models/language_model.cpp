#include "megatron/models/language_model.h"

#include "megatron/base/error.h"

namespace megatron {

StepOutput LanguageModel::forward_step(const Microbatch& microbatch, bool training) {
  StageOutput output = forward_chunk(0, microbatch, {}, training);
  MEGATRON_CHECK(output.loss.has_value(),
                 "a forward step on a rank that holds a part of the model");
  return *std::move(output.loss);
}

Activations LanguageModel::forward_inference_chunk(std::int64_t /*chunk*/,
                                                   const InferenceInput& pass,
                                                   const Activations& /*in*/) {
  return {logits(pass.tokens, pass.start, pass.kv_cache, pass.last_token_only)};
}

}  // namespace megatron
