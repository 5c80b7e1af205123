// What the training loop, evaluation and generation need of a language model, whatever its family.
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

/// A pass without gradients over tokens int64 [b, s] that start at position `start`.
struct InferenceInput {
  at::Tensor tokens;
  std::int64_t start = 0;
  KvCache* kv_cache = nullptr;
  bool last_token_only = false;
};

class LanguageModel : public Module {
 public:
  using Module::Module;
  virtual const TransformerConfig& config() const = 0;
  /// Stages of the pipeline that this rank holds.
  virtual std::int64_t num_chunks() const { return 1; }
  /// What chunk `chunk` takes from the stage before; nothing on the first stage.
  virtual std::vector<ActivationSpec> input_specs(std::int64_t /*chunk*/,
                                                  const Microbatch& /*microbatch*/) const {
    return {};
  }
  /// What chunk `chunk` hands to the next stage; nothing on the last.
  virtual std::vector<ActivationSpec> output_specs(std::int64_t /*chunk*/,
                                                   const Microbatch& /*microbatch*/) const {
    return {};
  }
  /// Runs one stage on a microbatch; `training` turns dropout on. `in` as input_specs says.
  virtual StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch,
                                    const Activations& in, bool training) = 0;
  /// Loss of one microbatch, where this rank holds the whole model.
  StepOutput forward_step(const Microbatch& microbatch, bool training);
  /// Logits float32 [b, s, vocab_size] (padding removed) of tokens int64 [b, s], which start at
  /// position `start`. `kv_cache` holds what earlier calls left and receives this call's (keys and
  /// values); null for a single full pass. With `last_token_only`, s of the result is 1.
  virtual at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache* kv_cache,
                            bool last_token_only) = 0;
  /// One stage of that: hidden rows for the next stage or, on the last one, the logits.
  virtual Activations forward_inference_chunk(std::int64_t chunk, const InferenceInput& pass,
                                              const Activations& in);

 protected:
  friend class UnitHooksScope;
  UnitHooks* unit_hooks_ = nullptr;
};

/// Hooks around the units of a model's forward passes for as long as this lives; those before it,
/// if any, rest meanwhile. Scopes nest.
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
