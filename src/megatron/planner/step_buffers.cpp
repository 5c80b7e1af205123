// t tokens of a rank, h hidden channels, n query heads and g groups of d channels.
#include "megatron/planner/step_buffers.h"

#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/loss.h"
#include "megatron/ops/fused_attention.h"
#include "megatron/ops/linear_attention.h"
#include "megatron/ops/rotary.h"

namespace megatron {
namespace {

constexpr double kFloatBytes = 4, kIndexBytes = 8;

double number(std::int64_t count) { return static_cast<double>(count); }

c10::ScalarType dtype_of(const ActivationLayout& layout) {
  return layout.element_bytes == 2   ? c10::kBFloat16
         : layout.element_bytes == 8 ? c10::kDouble
                                     : c10::kFloat;
}

/// The heads and groups of a rank of tp.
struct Heads {
  Heads(const TransformerConfig& config, const ActivationLayout& layout)
      : n(config.num_attention_heads / layout.tensor_parallel),
        g(std::max<std::int64_t>(1, config.query_groups() / layout.tensor_parallel)) {}
  std::int64_t n, g;
};

/// Returns the elements of a head's rows, the mean of its keys and values.
double mean_row(const TransformerConfig& config, const ActivationLayout& layout) {
  return number(layout.tokens) * number(config.qk_channels() + config.v_channels()) / 2;
}

/// Returns the shapes of one call of the attention kernels.
AttentionSizes call_sizes(const TransformerConfig& config, const ActivationLayout& layout,
                          CpCommType exchange, std::int64_t micro_batch_size) {
  const Heads heads(config, layout);
  const std::int64_t rows = layout.tokens / micro_batch_size, ranks = layout.context_parallel,
                     head_ranks = layout.head_ranks(exchange);
  AttentionSizes sizes{.sq = rows,
                       .sk = rows,
                       .b = micro_batch_size,
                       .n = std::max<std::int64_t>(1, heads.n / head_ranks),
                       .g = std::max<std::int64_t>(1, heads.g / head_ranks),
                       .d = config.qk_channels()};
  if (ranks == 1) return sizes;
  // Each rank holds two chunks of the sequence, which a ring and all_gather attend for apart.
  const bool in_chunks = exchange != CpCommType::a2a;
  sizes.sq = in_chunks ? rows / 2 : rows * ranks;
  sizes.sk = exchange == CpCommType::all_gather ? rows * ranks : sizes.sq;
  return sizes;
}

AttentionBuffers kernel_buffers(const TransformerConfig& config, const ActivationLayout& layout,
                                CpCommType exchange, std::int64_t micro_batch_size) {
  if (dtype_of(layout) == c10::kDouble) return {};
  return fused_attention_buffers(call_sizes(config, layout, exchange, micro_batch_size),
                                 dtype_of(layout));
}

/// Returns the bytes that the backward pass of a layer's MLP, or of its experts, holds.
double feed_forward_backward_bytes(const TransformerConfig& config, const LayerKind& kind,
                                   const ActivationLayout& layout) {
  const MoeConfig& moe = config.moe;
  if (kind.feed_forward == FeedForwardKind::none) return 0;
  if (kind.has_mlp()) {
    // Dropout gives the MLP a gradient of its own, besides that of the residual stream.
    const double masked = config.hidden_dropout > 0 ? hidden_bytes(config, layout) : 0;
    return mlp_backward_bytes(config, config.ffn_hidden_size, layout) + masked;
  }
  // The rows of the experts are the tokens of an MLP of their width.
  ActivationLayout rows = layout;
  rows.tokens = static_cast<std::int64_t>(expert_rows(moe, layout));
  rows.tensor_parallel = layout.expert_tensor_parallel;
  rows.sequence_parallel = false;
  const std::int64_t width = moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config.ffn_hidden_size,
                     input = moe.latent_size > 0 ? moe.latent_size : config.hidden_size;
  return mlp_backward_bytes(config, width, rows) +
         number(rows.tokens) * number(input) * layout.element_bytes;
}

LinearAttentionSizes scan_sizes(const TransformerConfig& config, MixerKind mixer,
                                const ActivationLayout& layout, std::int64_t micro_batch_size) {
  const RecurrentSizes sizes =  // the ranks of cp divide the heads
      config.recurrent_sizes(mixer).of_rank(layout.tensor_parallel * layout.context_parallel);
  const std::int64_t rows = layout.tokens * layout.context_parallel / micro_batch_size;
  return {.s = rows,
          .b = micro_batch_size,
          .groups = sizes.groups,
          .heads = sizes.heads,
          .n = sizes.key_dim,
          .p = sizes.value_dim,
          .longest = rows};
}

/// Returns the bytes that the backward pass of a recurrence holds: gradients of its output, of what
/// its convolution returns and reads, and of the projection.
double recurrent_backward_bytes(const TransformerConfig& config, MixerKind mixer,
                                const ActivationLayout& layout, std::int64_t micro_batch_size) {
  const LinearAttentionSizes sizes = scan_sizes(config, mixer, layout, micro_batch_size);
  const double values = number(sizes.heads * sizes.p),
               convolved = values + number(2 * sizes.groups * sizes.n);
  return number(sizes.s * sizes.b) * (2 * values + 3 * convolved) * layout.element_bytes +
         number(linear_attention_buffers(sizes).backward);
}

/// Returns the most that the layers hold in forward and backward, besides what they keep of all
/// microbatches in flight.
double layer_buffer_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                          const StepShape& shape, const StageActivations& stage) {
  const double gradient = hidden_bytes(config, layout), kept = stage.total_kept();
  double most = 0;
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const LayerKind kind = config.kind(shape.layers[i]);
    const CpCommType exchange = kind.cp_comm_type;
    const LayerTrace& whole = stage.whole[i];
    const double held = stage.held_at(i) - kept,
                 of_attention = whole.kept_until(LayerNode::core_attn);
    most = std::max(most, held + gradient + feed_forward_backward_bytes(config, kind, layout));
    if (!kind.has_mixer()) continue;
    const std::int64_t samples = shape.micro_batch_size;
    most =
        std::max(most, held - whole.kept_bytes() + of_attention + gradient +
                           (kind.has_attention()
                                ? attention_backward_bytes(config, layout, exchange, samples)
                                : recurrent_backward_bytes(config, kind.mixer, layout, samples)));
    if (kind.has_attention() &&
        i + 1 == shape.layers.size())  // a recomputed layer has its activations in forward too
      most = std::max(
          most, of_attention - stage.kept[i] +
                    attention_forward_bytes(config, layout, exchange, shape.micro_batch_size));
  }
  return most;
}

/// Returns what is held throughout the step.
double held_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                  const StepShape& shape) {
  const double tokens = number(layout.tokens), positions = tokens / number(shape.micro_batch_size);
  double tables = config.has_rotary() ? positions * number(rotary_dim(config)) * kFloatBytes : 0;
  if (layout.context_parallel > 1)
    tables += 2 * kIndexBytes * positions * number(layout.context_parallel);
  return shape.microbatches_in_flight * tables +
         number(shape.num_microbatches) * tokens * kSampleBytes;
}

}  // namespace

double attention_forward_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                               CpCommType exchange, std::int64_t micro_batch_size) {
  const Heads heads(config, layout);
  const double row = mean_row(config, layout), element = layout.element_bytes,
               wide = std::max(element, kFloatBytes);
  const double queries = row * number(heads.n), keys = 2 * row * number(heads.g),
               exchanged = 2 * row * number(std::max(heads.g, layout.head_ranks(exchange)));
  double bytes = number(kernel_buffers(config, layout, exchange, micro_batch_size).forward);
  if (layout.context_parallel == 1) return bytes;
  if (exchange != CpCommType::p2p) bytes += (queries + keys) * element;
  if (exchange == CpCommType::p2p || exchange == CpCommType::a2a_p2p)
    bytes += queries * (wide - element) + 2 * exchanged * element;
  return bytes;
}

double attention_backward_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                                CpCommType exchange, std::int64_t micro_batch_size) {
  const Heads heads(config, layout);
  const std::int64_t head_ranks = layout.head_ranks(exchange);
  const double row = mean_row(config, layout), element = layout.element_bytes,
               wide = std::max(element, kFloatBytes);
  const double queries = row * number(heads.n), keys = 2 * row * number(heads.g),
               exchanged = 2 * row * number(std::max(heads.g, head_ranks));
  const double calls = number(kernel_buffers(config, layout, exchange, micro_batch_size).backward);
  const double dout = queries * element;
  if (layout.context_parallel == 1) return dout + (queries + keys) * element + calls;
  switch (exchange) {
    case CpCommType::all_gather:
      return dout + (queries + queries / 2) * element +
             2 * keys * number(layout.context_parallel) * element + calls;
    case CpCommType::a2a:
      return dout + (queries + exchanged) * element + calls;
    case CpCommType::p2p:
    case CpCommType::a2a_p2p:
      break;
  }
  const double piece = (queries + exchanged) / number(2 * head_ranks) * element;
  return dout + queries * wide + exchanged * (2 * element + 3 * wide) + piece + calls;
}

double mlp_backward_bytes(const TransformerConfig& config, std::int64_t width,
                          const ActivationLayout& layout) {
  const double features = (config.gated_linear_unit ? 4.0 : 3.0) * number(width);
  return number(layout.tokens) * features * layout.element_bytes / number(layout.tensor_parallel) +
         (layout.sequence_parallel ? hidden_bytes(config, layout, /*is_sliced=*/false) : 0);
}

double loss_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                  std::int64_t vocabulary) {
  const double whole = hidden_bytes(config, layout, /*is_sliced=*/false);
  const LogitBlocks blocks = logit_blocks(layout.tokens, vocabulary, dtype_of(layout));
  double logits = number(blocks.block_tokens) * number(vocabulary) * layout.element_bytes;
  if (layout.element_bytes < kFloatBytes)
    logits += number(blocks.chunk_tokens) * number(vocabulary) * kFloatBytes;
  return 2 * hidden_bytes(config, layout) + whole + (layout.sequence_parallel ? whole : 0) + logits;
}

double attention_workspace_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                                 const StepShape& shape) {
  std::int64_t workspace = 0;
  for (const std::int64_t layer : shape.layers)
    if (const LayerKind kind = config.kind(layer); kind.has_mixer())
      workspace = std::max(
          workspace,
          kind.has_attention()
              ? kernel_buffers(config, layout, kind.cp_comm_type, shape.micro_batch_size).per_thread
              : linear_attention_buffers(
                    scan_sizes(config, kind.mixer, layout, shape.micro_batch_size))
                    .per_thread);
  return number(workspace);
}

double step_buffer_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                         const StepShape& shape, const StageActivations& stage) {
  // What the last layer offloads is still being copied when the loss is computed.
  const double waiting =
      stage.offloaded.empty() ? 0 : std::min(stage.offloaded.back(), kMostOffloadInFlight);
  const double loss = shape.has_output ? loss_bytes(config, layout, shape.vocabulary) + waiting : 0;
  return std::max(loss, layer_buffer_bytes(config, layout, shape, stage)) +
         held_bytes(config, layout, shape);
}

}  // namespace megatron
