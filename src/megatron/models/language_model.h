// The interface of a language model of any family: a model that also generates.
#pragma once

#include "megatron/models/model.h"
#include "megatron/ops/kv_cache.h"

namespace megatron {

/// The input of an inference pass over tokens int64 [b, s] whose first position is `start`. With
/// `last_token_only`, logits are computed for the last token only.
struct InferenceInput {
  at::Tensor tokens;
  std::int64_t start = 0;
  KvCache* kv_cache = nullptr;
  bool last_token_only = false;
};

/// A language model, or the pipeline stages of one that this rank holds.
class LanguageModel : public Model {
 public:
  using Model::Model;
  /// Returns logits float32 [b, s, vocab_size], without vocabulary padding, of tokens int64 [b, s]
  /// whose first position is `start`. `kv_cache` holds the keys and values of earlier calls and
  /// receives those of this call; null means a single full pass. With `last_token_only`, s of the
  /// result is 1. The rank must hold the whole model.
  virtual at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache* kv_cache,
                            bool last_token_only) = 0;
  /// Runs one stage of logits(). Returns hidden rows for the next stage or, on the last stage, the
  /// logits.
  virtual Activations forward_inference_chunk(std::int64_t chunk, const InferenceInput& pass,
                                              const Activations& in);
};

}  // namespace megatron
