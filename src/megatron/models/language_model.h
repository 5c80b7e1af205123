// The interface of a language model of any family, as training, evaluation and generation use it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/microbatch.h"
#include "megatron/nn/module.h"
#include "megatron/nn/unit_hooks.h"
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
class LanguageModel : public Module {
 public:
  using Module::Module;
  virtual const TransformerConfig& config() const = 0;
  /// Returns the number of pipeline stages that this rank holds.
  virtual std::int64_t num_chunks() const { return 1; }
  /// Returns the specs of the activations that a chunk receives; empty on the first stage.
  virtual std::vector<ActivationSpec> input_specs(std::int64_t /*chunk*/,
                                                  const Microbatch& /*microbatch*/) const {
    return {};
  }
  /// Returns the specs of the activations that a chunk sends; empty on the last stage.
  virtual std::vector<ActivationSpec> output_specs(std::int64_t /*chunk*/,
                                                   const Microbatch& /*microbatch*/) const {
    return {};
  }
  /// Runs one stage on a microbatch. `in` must match input_specs(). `training` turns dropout on.
  /// Collective over the model's tensor-parallel axis.
  virtual StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch,
                                    const Activations& in, bool training) = 0;
  /// Returns the loss of one microbatch. The rank must hold the whole model.
  StepOutput forward_step(const Microbatch& microbatch, bool training);
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

 protected:
  friend class UnitHooksScope;
  UnitHooks* unit_hooks_ = nullptr;
};

/// Installs hooks around the units of a model's forward passes during its lifetime. Hooks of an
/// enclosing scope are suspended meanwhile.
class UnitHooksScope {
 public:
  UnitHooksScope(LanguageModel& model, UnitHooks& hooks)
      : model_(model), previous_(std::exchange(model.unit_hooks_, &hooks)) {}
  UnitHooksScope(const UnitHooksScope&) = delete;
  UnitHooksScope& operator=(const UnitHooksScope&) = delete;
  ~UnitHooksScope() { model_.unit_hooks_ = previous_; }

 private:
  LanguageModel& model_;
  UnitHooks* previous_;
};

}  // namespace megatron
