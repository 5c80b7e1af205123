// Converts tensors between Hugging Face's layout and ours, in global shapes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "megatron/models/hf/weight_map.h"
#include "megatron/params/sharding.h"

namespace megatron {

struct TransformerConfig;

/// Returns the shapes of the tensors that a parameter of shape `ours` consists of, in the order of
/// WeightMapping::theirs.
std::vector<Shape> hf_shapes(WeightTransform transform, const TransformerConfig& model,
                             const Shape& ours);

/// Builds our parameter from Hugging Face tensors, whose shapes hf_shapes() gives.
at::Tensor to_megatron(WeightTransform transform, const TransformerConfig& model,
                       const std::vector<at::Tensor>& theirs);

/// Splits our parameter into Hugging Face tensors.
std::vector<at::Tensor> to_hf(WeightTransform transform, const TransformerConfig& model,
                              const at::Tensor& ours);

}  // namespace megatron
