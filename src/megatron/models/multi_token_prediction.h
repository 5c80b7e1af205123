// Multi-token prediction (DeepSeek-V3, 2024, section 2.2), under Megatron's names. Depth k merges
// the rows of depth k − 1 with the embeddings of the tokens k positions later, runs a layer of its
// own, or the layers that a hybrid pattern gives it, and predicts, by the model's output layer, the
// token k + 1 positions later. Depths count from 1, and depth 0 is the decoder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/models/model_spec.h"

namespace megatron {

/// What lies `distance` positions later in the sequence of each row of x [b, s]; 0 where its
/// sequence or document ends before. Collective over the ranks that share the microbatch.
struct LaterRows {
  at::Tensor mine;  ///< of this rank's rows
  at::Tensor all;   ///< of the rows of all ranks, [b, positions of the microbatch]
};
LaterRows later_rows(const at::Tensor& x_bs, std::int64_t distance, const Microbatch& microbatch,
                     const ForwardContext& context);

/// Appends a stack and a head for each depth to a language model of one stack and one head.
void add_multi_token_prediction(ModelSpec& spec);

}  // namespace megatron
