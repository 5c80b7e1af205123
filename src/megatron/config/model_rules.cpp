// Rules on the architecture, from flags, a checkpoint or config.json.
#include <algorithm>

#include "megatron/config/legacy_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using S = const Settings&;

bool is_rotary(S s) {
  return s.model->position_embedding_type == PositionEmbedding::rope ||
         s.model->position_embedding_type == PositionEmbedding::yarn;
}

/// Returns the number of channels of a head that are rotated.
std::int64_t rotary_channels(S s) {
  return static_cast<std::int64_t>(static_cast<double>(s.model->kv_channels) *
                                   s.model->rotary_percent);
}

UserError::Parts required(const char* flag, const char* meaning) {
  return {flag, "is required", std::string("add ") + flag + " N, " + meaning};
}

std::int64_t largest_size(S s) {
  const TransformerConfig& m = *s.model;
  return std::max({m.hidden_size, m.num_attention_heads, m.ffn_hidden_size, m.kv_channels,
                   m.num_query_groups, m.vocab_size, m.max_position_embeddings,
                   m.moe.ffn_hidden_size, m.moe.shared_expert_intermediate_size,
                   m.moe.latent_size});
}

const std::vector<Rule>& size_rules() {
  static const std::vector<Rule> rules = {
      {{},
       [](S s) { return largest_size(s) > kMaxSize || s.model->num_layers > kMaxLayers; },
       [](S s) {
         return UserError::Parts{"the model",
                                 text_of(s.model->num_layers) + " layers, with a size of " +
                                     text_of(largest_size(s)) + ", is too large",
                                 "use sizes of at most " + text_of(kMaxSize) + " and at most " +
                                     text_of(kMaxLayers) + " layers"};
       }},
      {{"num_layers"},
       [](S s) { return s.model->num_layers <= 0; },
       [](S) { return required("--num-layers", "the number of transformer layers"); }},
      {{"hidden_size"},
       [](S s) { return s.model->hidden_size <= 0; },
       [](S) { return required("--hidden-size", "the hidden size of the model"); }},
      {{"num_attention_heads"},
       [](S s) { return s.model->num_attention_heads <= 0; },
       [](S) { return required("--num-attention-heads", "the number of query heads"); }},
      {{"hidden_size", "ffn_hidden_size"},
       [](S s) {
         return s.model->ffn_hidden_size == 0 && s.model->hidden_size > 0 &&
                s.model->hidden_size <= kMaxSize;
       },
       [](S s) {
         return UserError::Parts{
             "--ffn-hidden-size",
             "its default, 8/3 of --hidden-size rounded down to a multiple of 64, is 0 with " +
                 text_of(s.model->hidden_size),
             "give --ffn-hidden-size N, or a --hidden-size of at least 24"};
       }},
      {{"hidden_size", "num_attention_heads", "kv_channels"},
       [](S s) {
         const TransformerConfig& m = *s.model;
         const bool derived =
             m.num_attention_heads > 0 && m.kv_channels == m.hidden_size / m.num_attention_heads;
         return derived && m.hidden_size % m.num_attention_heads != 0;
       },
       [](S s) {
         return UserError::Parts{"--hidden-size",
                                 text_of(s.model->hidden_size) +
                                     " is not divisible by --num-attention-heads " +
                                     text_of(s.model->num_attention_heads),
                                 "change one of them, or set the head size with --kv-channels"};
       }},
      {{"num_attention_heads", "num_query_groups", "group_query_attention"},
       [](S s) {
         const TransformerConfig& m = *s.model;
         return m.group_query_attention && m.num_query_groups > 0 &&
                m.num_attention_heads % m.num_query_groups != 0;
       },
       [](S s) {
         return UserError::Parts{"--num-query-groups",
                                 text_of(s.model->num_query_groups) +
                                     " does not divide --num-attention-heads " +
                                     text_of(s.model->num_attention_heads),
                                 "use a divisor of --num-attention-heads"};
       }},
      {{"max_position_embeddings", "seq_length", "position_embedding_type"},
       [](S s) {
         return s.model->position_embedding_type == PositionEmbedding::learned_absolute &&
                s.model->max_position_embeddings < s.training->seq_length;
       },
       [](S s) {
         return UserError::Parts{
             "--max-position-embeddings",
             text_of(s.model->max_position_embeddings) + " is less than --seq-length " +
                 text_of(s.training->seq_length),
             "raise --max-position-embeddings, or use --position-embedding-type rope"};
       }},
      {{"padded_vocab_size", "vocab_size"},
       [](S s) {
         return s.tokenizer->vocab_size && s.tokenizer->padded_vocab_size.value_or(
                                               *s.tokenizer->vocab_size) < *s.tokenizer->vocab_size;
       },
       [](S s) {
         return UserError::Parts{"--padded-vocab-size",
                                 text_of(*s.tokenizer->padded_vocab_size) +
                                     " is less than --vocab-size " +
                                     text_of(*s.tokenizer->vocab_size),
                                 "raise --padded-vocab-size, or leave it out"};
       }},
      {{"vocab_size", "tokenizer_type"},
       [](S s) {
         return s.tokenizer->vocab_size && s.model->vocab_size > 0 &&
                *s.tokenizer->vocab_size > s.model->vocab_size;
       },
       [](S s) {
         return UserError::Parts{"--vocab-size",
                                 text_of(*s.tokenizer->vocab_size) + " is more than the model's " +
                                     text_of(s.model->vocab_size),
                                 "use at most " + text_of(s.model->vocab_size)};
       }},
  };
  return rules;
}

const std::vector<Rule>& position_rules() {
  static const std::vector<Rule> rules = {
      {{"no_position_embedding", "position_embedding_type"},
       [](S s) {
         return s.legacy->no_position_embedding &&
                s.model->position_embedding_type == PositionEmbedding::learned_absolute;
       },
       [](S) {
         return UserError::Parts{
             "--no-position-embedding", "requires no learned positions, but the model has them",
             "add --position-embedding-type rope, or none for a model without any positions"};
       }},
      {{"rotary_percent", "kv_channels", "hidden_size", "num_attention_heads",
        "position_embedding_type"},
       [](S s) {
         return is_rotary(s) && s.model->kv_channels > 0 &&
                (rotary_channels(s) < 2 || rotary_channels(s) % 2 != 0);
       },
       [](S s) {
         return UserError::Parts{
             "--rotary-percent",
             detail::concatenate(s.model->rotary_percent, " of ", s.model->kv_channels,
                                 " head channels is ", rotary_channels(s),
                                 ", not an even number above 0"),
             "change --rotary-percent or --kv-channels"};
       }},
      {{"rope_scaling_type", "position_embedding_type"},
       [](S s) { return !is_rotary(s) && s.model->rope_scaling_type != RopeScaling::none; },
       [](S) {
         return UserError::Parts{"rotary scaling", "needs rotary positions",
                                 "add --position-embedding-type rope, or leave the scaling out"};
       }},
      {{"rope_low_freq_factor", "rope_high_freq_factor", "rope_scaling_type"},
       [](S s) {
         return s.model->rope_scaling_type == RopeScaling::llama3 &&
                s.model->rope_high_freq_factor <= s.model->rope_low_freq_factor;
       },
       [](S s) {
         return UserError::Parts{"--rope-high-freq-factor",
                                 detail::concatenate(s.model->rope_high_freq_factor,
                                                     " is not above --rope-low-freq-factor ",
                                                     s.model->rope_low_freq_factor),
                                 "raise --rope-high-freq-factor"};
       }},
  };
  return rules;
}

bool is_malformed_pattern(S s) {
  return !s.model->window_attn_skip_freq.empty() && s.model->window_layers.empty() &&
         s.model->num_layers > 0;
}

bool is_gated(S s, Activation kind) {
  return s.model->gated_linear_unit && s.model->activation == kind;
}

bool has_layers_with_experts(S s) {
  const std::vector<std::int64_t>& layers = s.model->moe.layers;
  return s.model->moe.num_experts > 0 &&
         (layers.empty() || std::ranges::any_of(layers, [](auto layer) { return layer != 0; }));
}

const std::vector<Rule>& gate_rules() {
  static const std::vector<Rule> rules = {
      {{"activation_func_clamp_value", "activation", "gated_linear_unit", "num_experts",
        "moe_layer_freq", "num_layers"},
       [](S s) {
         return s.model->activation_func_clamp_value && !is_gated(s, Activation::quick_gelu) &&
                !(is_gated(s, Activation::silu) && has_layers_with_experts(s));
       },
       [](S s) {
         const bool is_swiglu = is_gated(s, Activation::silu);
         return UserError::Parts{
             "--activation-func-clamp-value",
             is_swiglu ? "needs experts with --swiglu, but every MLP of the model is dense"
                       : "needs --quick-geglu, or --swiglu with experts",
             std::string(is_swiglu ? "add --num-experts N" : "add --quick-geglu") +
                 ", or leave --activation-func-clamp-value out"};
       }},
      {{"glu_linear_offset", "activation", "gated_linear_unit"},
       [](S s) { return s.model->glu_linear_offset != 0 && !is_gated(s, Activation::quick_gelu); },
       [](S s) {
         return UserError::Parts{
             detail::concatenate("--glu-linear-offset ", s.model->glu_linear_offset),
             "needs --quick-geglu", "add --quick-geglu, or leave --glu-linear-offset out"};
       }},
  };
  return rules;
}

const std::vector<Rule>& attention_rules() {
  static const std::vector<Rule> rules = {
      {{"window_size"},
       [](S s) {
         return s.model->window_size &&
                std::min((*s.model->window_size)[0], (*s.model->window_size)[1]) < -1;
       },
       [](S s) {
         return UserError::Parts{
             "--window-size",
             detail::concatenate((*s.model->window_size)[0], ",", (*s.model->window_size)[1],
                                 " has a side below -1"),
             "use -1 for an unlimited side"};
       }},
      {{"window_attn_skip_freq", "num_layers"},
       is_malformed_pattern,
       [](S s) {
         return UserError::Parts{"--window-attn-skip-freq",
                                 "'" + s.model->window_attn_skip_freq +
                                     "' is neither a number above 0 nor a list expression",
                                 "write 4, or ([1]*3+[0])*2"};
       }},
      {{"window_attn_skip_freq", "num_layers"},
       [](S s) {
         return !s.model->window_layers.empty() &&
                std::int64_t(s.model->window_layers.size()) != s.model->num_layers;
       },
       [](S s) {
         return UserError::Parts{"--window-attn-skip-freq",
                                 "names " + text_of(std::int64_t(s.model->window_layers.size())) +
                                     " layers, --num-layers is " + text_of(s.model->num_layers),
                                 "list every layer once"};
       }},
      {{"window_attn_skip_freq", "window_size"},
       [](S s) { return !s.model->window_attn_skip_freq.empty() && !s.model->window_size; },
       [](S) {
         return UserError::Parts{"--window-attn-skip-freq", "needs --window-size",
                                 "add --window-size left,right"};
       }},
      {{"norm_placement", "apply_residual_connection_post_layernorm"},
       [](S s) {
         return s.model->norm_placement == NormPlacement::post &&
                s.model->apply_residual_connection_post_layernorm;
       },
       [](S) {
         return UserError::Parts{"--apply-residual-connection-post-layernorm",
                                 "excludes --norm-placement post", "give one of the two"};
       }},
  };
  return rules;
}

const std::vector<Rule>& query_key_norm_rules() {
  static const std::vector<Rule> rules = {
      {{"qk_layernorm_scope", "qk_layernorm"},
       [](S s) {
         return s.model->qk_layernorm_scope == QkNormScope::all_heads && !s.model->qk_layernorm;
       },
       [](S) {
         return UserError::Parts{"--qk-layernorm-scope all_heads", "needs --qk-layernorm",
                                 "add --qk-layernorm"};
       }},
      {{"qk_layernorm_scope", "qk_layernorm", "normalization"},
       [](S s) {
         return s.model->qk_layernorm_scope == QkNormScope::all_heads && s.model->qk_layernorm &&
                s.model->normalization != Normalization::RMSNorm;
       },
       [](S) {
         return UserError::Parts{"--qk-layernorm-scope all_heads", "needs RMSNorm",
                                 "add --normalization RMSNorm"};
       }},
  };
  return rules;
}

}  // namespace

Problems validate_model(const Settings& settings, const FieldNames& skip) {
  Problems problems;
  for (const auto* rules : {&size_rules(), &position_rules(), &attention_rules(),
                            &query_key_norm_rules(), &gate_rules(), &moe_rules(), &sharding_rules(),
                            &context_sharding_rules(), &layout_rules(), &recomputed_module_rules()})
    problems.add(evaluate(*rules, settings, skip));
  return problems;
}

Problems validate_model(const TransformerConfig& model) {
  Settings settings;
  settings.model = model;
  return validate_model(settings);
}

}  // namespace megatron
