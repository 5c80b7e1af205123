// Mamba-2 (Dao & Gu 2024): state-space layers whose heads share B and C in groups.
#pragma once

#include "megatron/nn/ssm/recurrent_mixer.h"

namespace megatron {

/// The mixer of a layer M of a hybrid pattern.
class MambaMixer : public RecurrentMixer {
 public:
  MambaMixer(Module* parent, std::string_view name, const LayerArguments& arguments);

 private:
  at::Tensor gates(const at::Tensor& columns, const HeadShare& share) const override;
  at::Tensor with_skip(const at::Tensor& out, const at::Tensor& value,
                       const HeadShare& share) const override;

  Parameter& d_;
};

}  // namespace megatron
