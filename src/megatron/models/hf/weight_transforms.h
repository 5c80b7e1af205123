// The arithmetic of WeightTransform: Hugging Face tensors ↔ ours, in global shapes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_map.h"
#include "megatron/params/sharding.h"

namespace megatron {

/// Shapes of the tensors that a parameter of shape `ours` is made of, in the order of
/// WeightMapping::theirs.
std::vector<Shape> hf_shapes(WeightTransform transform, const TransformerConfig& model,
                             const Shape& ours);

/// One of ours from theirs (shapes as hf_shapes gives them).
at::Tensor to_megatron(WeightTransform transform, const TransformerConfig& model,
                       const std::vector<at::Tensor>& theirs);

/// Theirs from one of ours.
std::vector<at::Tensor> to_hf(WeightTransform transform, const TransformerConfig& model,
                              const at::Tensor& ours);

}  // namespace megatron
