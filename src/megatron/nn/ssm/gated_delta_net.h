// The gated delta net (Yang et al. 2025, as in Qwen3-Next): linear attention whose state forgets by
// a gate and replaces what a key stood for.
#pragma once

#include "megatron/nn/ssm/recurrent_mixer.h"

namespace megatron {

/// The mixer of a layer G of a hybrid pattern, or in place of a layer's attention.
class GatedDeltaNet : public RecurrentMixer {
 public:
  GatedDeltaNet(Module* parent, std::string_view name, const LayerArguments& arguments);

 private:
  at::Tensor gates(const at::Tensor& columns, const HeadShare& share) const override;

  const double most_beta_;  ///< of the gate of what enters the state
};

}  // namespace megatron
