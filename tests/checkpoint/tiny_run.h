// A tiny Llama with weights and an optimizer, for tests of saving and loading.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/gpt_model.h"

namespace megatron {

struct TransformerConfig;

TransformerConfig tiny_llama();

/// A tiny model with weights and an Adam optimizer whose state is random.
struct TinyRun {
  explicit TinyRun(std::uint64_t seed, const TransformerConfig& config = tiny_llama(),
                   const std::string& name = "adam");
  SaveRequest request(std::int64_t iteration) const;
  std::vector<at::Tensor> tensors() const;

  Settings settings;
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

}  // namespace megatron
