// The choices among which an architecture chooses.
#pragma once

namespace megatron {

enum class Normalization { LayerNorm, RMSNorm };
enum class PositionEmbedding { learned_absolute, rope, yarn, alibi, none };
enum class Activation { gelu, gelu_tanh, relu, squared_relu, silu, quick_gelu };
enum class NormPlacement { pre, post };
enum class QkNormScope { head, all_heads };
enum class RopeScaling { none, linear, llama3, yarn };

}  // namespace megatron
