#include "megatron/planner/activation_memory.h"

#include <algorithm>

#include "megatron/config/context_sizes.h"
#include "megatron/params/params_dtype.h"

namespace megatron {
namespace {

constexpr double kFloatBytes = 4;

/// Returns the tokens of which this rank keeps rows of width h.
double hidden_rows(const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens) /
         (layout.sequence_parallel ? static_cast<double>(layout.tensor_parallel) : 1);
}

double fc1_width(const TransformerConfig& config, std::int64_t width) {
  return (config.gated_linear_unit ? 2.0 : 1.0) * static_cast<double>(width);
}

/// Returns how many rows of kv_channels attention keeps per token on one rank of tp.
double attention_heads_kept(const TransformerConfig& config, const ActivationLayout& layout,
                            CpCommType exchange) {
  const double tensor = static_cast<double>(layout.tensor_parallel),
               heads = static_cast<double>(config.num_attention_heads) / tensor,
               groups = static_cast<double>(config.query_groups()) / tensor,
               ranks = static_cast<double>(layout.context_parallel);
  const bool rotates = config.position_embedding_type == PositionEmbedding::rope ||
                       config.position_embedding_type == PositionEmbedding::yarn;
  const bool is_whole = layout.context_parallel == 1 || exchange == CpCommType::p2p;
  // What the operations before attention keep: the inputs of the norms, their results where these
  // are clamped, and the q|k|v that a clamp reads.
  const double mixed = heads + 2 * groups;
  double kept = config.qk_layernorm ? heads + groups : 0;
  const bool copies_q = config.qk_layernorm || config.clip_qkv || rotates || heads != groups,
             copies_k = config.qk_layernorm || config.clip_qkv || rotates;
  const bool reads_mixed = config.clip_qkv.has_value();
  if (config.clip_qkv && config.qk_layernorm) kept += heads + groups;
  // The inputs of attention. Those that are no copies are views of q|k|v.
  if (is_whole) {
    kept += mixed + (copies_q ? heads : 0) + (copies_k ? groups : 0) + (reads_mixed ? groups : 0);
  } else if (exchange == CpCommType::all_gather) {
    kept += (copies_q ? heads : mixed) + (copies_q && reads_mixed ? mixed : 0) + 2 * groups * ranks;
  } else {
    const double shared = std::max(groups, static_cast<double>(layout.head_ranks(exchange)));
    kept += heads + 2 * shared + (reads_mixed ? mixed : 0);
  }
  return kept + (is_whole ? 1 : 2) * heads;  // the result
}

}  // namespace

ActivationLayout activation_layout(const Settings& settings, const Rank& rank) {
  const TrainingConfig& training = settings.training;
  return {.tokens = tokens_per_rank(settings, rank.cp.size),
          .tensor_parallel = rank.tp.size,
          .expert_tensor_parallel = rank.etp.size,
          .sequence_parallel = rank.sequence_parallel,
          .element_bytes = static_cast<double>(c10::elementSize(params_dtype(training))),
          .context_parallel = rank.cp.size,
          .context_head_ranks = rank.cp_a2a.size,
          .context_options = rank.cp_options};
}

double expert_rows(const MoeConfig& moe, const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens * moe.router_topk * layout.expert_tensor_parallel) /
         static_cast<double>(layout.tensor_parallel);
}

double attention_activation_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                                  CpCommType exchange) {
  const double tensor = static_cast<double>(layout.tensor_parallel),
               tokens = static_cast<double>(layout.tokens),
               heads = static_cast<double>(config.num_attention_heads);
  const double num_statistics = config.normalization == Normalization::LayerNorm ? 2 : 1;
  const double hidden =
      hidden_rows(layout) * (4 * static_cast<double>(config.hidden_size) * layout.element_bytes +
                             2 * num_statistics * kFloatBytes);
  const double num_head_norms = config.qk_layernorm_scope == QkNormScope::head
                                    ? heads + static_cast<double>(config.query_groups())
                                    : 2 * tensor;  // on each rank
  const double head_statistics = config.qk_layernorm ? num_statistics * num_head_norms : 0;
  const double attention =
      tokens * (attention_heads_kept(config, layout, exchange) *
                    static_cast<double>(config.kv_channels) * layout.element_bytes +
                (heads + head_statistics) / tensor * kFloatBytes);
  return hidden + attention;
}

double mlp_activation_bytes(const TransformerConfig& config, std::int64_t width,
                            const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens) * fc1_width(config, width) * layout.element_bytes /
         static_cast<double>(layout.tensor_parallel);
}

double moe_activation_bytes(const TransformerConfig& config, const ActivationLayout& layout) {
  const MoeConfig& moe = config.moe;
  const std::int64_t width = moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config.ffn_hidden_size;
  const double input =
      static_cast<double>(moe.latent_size > 0 ? moe.latent_size : config.hidden_size);
  const double row =
      (input + fc1_width(config, width) / static_cast<double>(layout.expert_tensor_parallel)) *
          layout.element_bytes +
      kFloatBytes;
  const double token = static_cast<double>(moe.num_experts) * kFloatBytes +
                       static_cast<double>(moe.latent_size) * layout.element_bytes;
  const double own_tokens =
      static_cast<double>(layout.tokens) / static_cast<double>(layout.tensor_parallel);
  const bool copies_input = layout.tensor_parallel > 1 && !layout.sequence_parallel;
  const double copy =
      copies_input ? static_cast<double>(config.hidden_size) * layout.element_bytes : 0;
  return expert_rows(moe, layout) * row + own_tokens * (token + copy) +
         mlp_activation_bytes(config, moe.shared_expert_intermediate_size, layout);
}

double layer_activation_bytes(const TransformerConfig& config, std::int64_t layer,
                              const ActivationLayout& layout) {
  return attention_activation_bytes(config, layout, layout.context_options.comm_type_of(layer)) +
         (config.moe.has_experts(layer)
              ? moe_activation_bytes(config, layout)
              : mlp_activation_bytes(config, config.ffn_hidden_size, layout));
}

}  // namespace megatron
