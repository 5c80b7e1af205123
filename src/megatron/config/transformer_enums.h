// The choices of an architecture: norms, positions, activations, routers.
#pragma once

namespace megatron {

enum class Normalization { LayerNorm, RMSNorm };
enum class PositionEmbedding { learned_absolute, rope, yarn, alibi, relative, none };
enum class Activation { gelu, gelu_tanh, relu, squared_relu, silu, quick_gelu };
/// Where a block has norms: of its input; of the sum with the residual; of its input and its
/// output; of its output; of its output, but of its input in recurrent layers.
enum class NormPlacement { pre, post, sandwich, output, output_unless_recurrent };
/// What one norm of queries or keys covers: a head, with weights that all heads share; all heads; a
/// head, with weights of its own.
enum class QkNormScope { head, all_heads, each_head };
enum class QkNormPlacement { before_rotary, after_rotary };
enum class SoftmaxType { vanilla, off_by_one, learnable };
/// What layers have in place of attention (--experimental-attention-variant).
enum class AttentionVariant { none, gated_delta_net };
enum class RopeScaling { none, linear, llama3, yarn };

enum class RouterScore { softmax, sigmoid, sqrtsoftplus };
enum class LoadBalancing { none, aux_loss, seq_aux_loss, global_aux_loss, sinkhorn };
enum class RouterDtype { none, fp32, fp64 };
enum class TokenDropPolicy { probs, position };
enum class TokenDispatcherType { allgather, alltoall, flex };

}  // namespace megatron
