#include "megatron/models/language_model.h"

namespace megatron {

Activations LanguageModel::forward_inference_chunk(std::int64_t /*chunk*/,
                                                   const InferenceInput& pass,
                                                   const Activations& /*in*/) {
  return {logits(pass.tokens, pass.start, pass.kv_cache, pass.last_token_only)};
}

}  // namespace megatron
