// A GPT with a few thousand weights, its Llama variant, and batches for it.
#pragma once

#include <cstdint>

#include "megatron/nn/microbatch.h"

namespace megatron {

struct TransformerConfig;

/// Returns a config with 2 layers of 12 channels, vocabulary 13, 8 positions, and dropout.
TransformerConfig tiny_gpt();

/// Sets RMSNorm, RoPE, SwiGLU, two query groups, no bias, and an untied output layer.
void make_llama(TransformerConfig& config);

/// Returns b samples of s tokens below `vocab`. Labels are the successors, positions are [1, s],
/// ordinals start at 5, and every token counts.
Microbatch patterned_batch(std::int64_t b, std::int64_t s, std::int64_t vocab);

}  // namespace megatron
