// Rules on the architecture, from flags, a checkpoint or config.json.
#include <algorithm>

#include "megatron/config/legacy_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using namespace rules;

bool is_rotary(S s) {
  return s.model->position_embedding_type == PositionEmbedding::rope ||
         s.model->position_embedding_type == PositionEmbedding::yarn;
}

/// Returns the number of channels of a head that are rotated.
std::int64_t rotary_channels(S s) {
  return static_cast<std::int64_t>(static_cast<double>(s.model->kv_channels) *
                                   s.model->rotary_percent);
}

std::int64_t largest_size(S s) {
  const TransformerConfig& m = *s.model;
  return std::max({m.hidden_size, m.num_attention_heads, m.ffn_hidden_size, m.kv_channels,
                   m.num_query_groups, m.vocab_size, m.max_position_embeddings,
                   m.moe.ffn_hidden_size, m.moe.shared_expert_intermediate_size,
                   m.moe.latent_size});
}

Rules size_rules() {
  return {
      rule([](S s) { return largest_size(s) > kMaxSize || s.model->num_layers > kMaxLayers; },
           {"the model",
            {value(&Model::num_layers), " layers, with a size of ", largest_size, ", is too large"},
            {"use sizes of at most ", kMaxSize, " and at most ", kMaxLayers, " layers"}}),
      required(&Model::num_layers, "the number of transformer layers"),
      required(&Model::hidden_size, "the hidden size of the model"),
      required(&Model::num_attention_heads, "the number of query heads"),
      rule(
          [](S s) {
            return s.model->ffn_hidden_size == 0 && s.model->hidden_size > 0 &&
                   s.model->hidden_size <= kMaxSize;
          },
          {&Model::ffn_hidden_size,
           {"its default, 8/3 of ", &Model::hidden_size,
            " rounded down to a multiple of 64, is 0 with ", value(&Model::hidden_size)},
           {"give ", &Model::ffn_hidden_size, " N, or a ", &Model::hidden_size,
            " of at least 24"}}),
      rule(
          [](S s) {
            const TransformerConfig& m = *s.model;
            const bool derived =
                m.num_attention_heads > 0 && m.kv_channels == m.hidden_size / m.num_attention_heads;
            return derived && m.hidden_size % m.num_attention_heads != 0;
          },
          {&Model::hidden_size,
           {value(&Model::hidden_size), " is not divisible by ",
            with_value(&Model::num_attention_heads)},
           {"change one of them, or set the head size with ", &Model::kv_channels}}),
      rule(
          [](S s) {
            const TransformerConfig& m = *s.model;
            return m.group_query_attention && m.num_query_groups > 0 &&
                   m.num_attention_heads % m.num_query_groups != 0;
          },
          {&Model::num_query_groups,
           {value(&Model::num_query_groups), " does not divide ",
            with_value(&Model::num_attention_heads)},
           {"use a divisor of ", &Model::num_attention_heads}}),
      rule(
          [](S s) {
            return s.model->position_embedding_type == PositionEmbedding::learned_absolute &&
                   s.model->max_position_embeddings < s.training->seq_length;
          },
          {&Model::max_position_embeddings,
           {value(&Model::max_position_embeddings), " is less than ",
            with_value(&Training::seq_length)},
           {"raise ", &Model::max_position_embeddings, ", or use ", &Model::position_embedding_type,
            " rope"}}),
      rule(
          [](S s) {
            const TokenizerConfig& t = *s.tokenizer;
            return t.vocab_size && t.padded_vocab_size && *t.padded_vocab_size < *t.vocab_size;
          },
          {&Tokenizer::padded_vocab_size,
           {value(&Tokenizer::padded_vocab_size), " is less than ",
            with_value(&Tokenizer::vocab_size)},
           {"raise ", &Tokenizer::padded_vocab_size, ", or leave it out"}}),
      rule(
          [](S s) {
            return s.model->vocab_size > 0 &&
                   s.tokenizer->vocab_size.value_or(0) > s.model->vocab_size;
          },
          [](S s) {
            return Message{
                &Tokenizer::vocab_size,
                {value(&Tokenizer::vocab_size), " is more than the model's ", s.model->vocab_size},
                {"use at most ", s.model->vocab_size}};
          }),
  };
}

Rules position_rules() {
  return {
      rule(
          [](S s) {
            return s.legacy->no_position_embedding &&
                   s.model->position_embedding_type == PositionEmbedding::learned_absolute;
          },
          {&Legacy::no_position_embedding,
           "requires no learned positions, but the model has them",
           {"add ", &Model::position_embedding_type,
            " rope, or none for a model without any positions"}}),
      rule(
          [](S s) {
            return is_rotary(s) && s.model->kv_channels > 0 &&
                   (rotary_channels(s) < 2 || rotary_channels(s) % 2 != 0);
          },
          {&Model::rotary_percent,
           {value(&Model::rotary_percent), " of ", value(&Model::kv_channels), " head channels is ",
            rotary_channels, ", not an even number above 0"},
           {"change ", &Model::rotary_percent, " or ", &Model::kv_channels},
           {&Model::hidden_size, &Model::num_attention_heads, &Model::position_embedding_type}}),
      rule([](S s) { return !is_rotary(s) && s.model->rope_scaling_type != RopeScaling::none; },
           {"rotary scaling",
            "needs rotary positions",
            {"add ", &Model::position_embedding_type, " rope, or leave the scaling out"}}),
      rule(
          [](S s) {
            return s.model->rope_scaling_type == RopeScaling::llama3 &&
                   s.model->rope_high_freq_factor <= s.model->rope_low_freq_factor;
          },
          {&Model::rope_high_freq_factor,
           {value(&Model::rope_high_freq_factor), " is not above ",
            with_value(&Model::rope_low_freq_factor)},
           {"raise ", &Model::rope_high_freq_factor}}),
  };
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

bool clamps_in_vain(S s) {
  return s.model->activation_func_clamp_value && !is_gated(s, Activation::quick_gelu) &&
         !(is_gated(s, Activation::silu) && has_layers_with_experts(s));
}

Rules gate_rules() {
  return {
      rule([](S s) { return clamps_in_vain(s) && is_gated(s, Activation::silu); },
           {&Model::activation_func_clamp_value,
            {"needs experts with ", &Legacy::swiglu, ", but every MLP of the model is dense"},
            {"add ", &Moe::num_experts, " N, or leave ", &Model::activation_func_clamp_value,
             " out"},
            {&Moe::layer_freq, &Model::num_layers}}),
      rule([](S s) { return clamps_in_vain(s) && !is_gated(s, Activation::silu); },
           {&Model::activation_func_clamp_value,
            {"needs ", &Legacy::quick_geglu, ", or ", &Legacy::swiglu, " with experts"},
            {"add ", &Legacy::quick_geglu, ", or leave ", &Model::activation_func_clamp_value,
             " out"},
            {&Model::activation, &Model::gated_linear_unit}}),
      rule(
          [](S s) {
            return s.model->glu_linear_offset != 0 && !is_gated(s, Activation::quick_gelu);
          },
          {with_value(&Model::glu_linear_offset),
           {"needs ", &Legacy::quick_geglu},
           {"add ", &Legacy::quick_geglu, ", or leave ", &Model::glu_linear_offset, " out"},
           {&Model::activation, &Model::gated_linear_unit}}),
  };
}

std::int64_t num_window_layers(S s) { return std::ssize(s.model->window_layers); }

Rules attention_rules() {
  return {
      rule(
          [](S s) {
            const auto& window = s.model->window_size;
            return window && std::min((*window)[0], (*window)[1]) < -1;
          },
          [](S s) {
            return Message{&Model::window_size,
                           {(*s.model->window_size)[0], ",", (*s.model->window_size)[1],
                            " has a side below -1"},
                           "use -1 for an unlimited side"};
          }),
      rule(is_malformed_pattern, {&Model::window_attn_skip_freq,
                                  {"'", value(&Model::window_attn_skip_freq),
                                   "' is neither a number above 0 nor a list expression"},
                                  "write 4, or ([1]*3+[0])*2",
                                  {&Model::num_layers}}),
      rule(
          [](S s) {
            return num_window_layers(s) > 0 && num_window_layers(s) != s.model->num_layers;
          },
          {&Model::window_attn_skip_freq,
           {"names ", num_window_layers, " layers, ", &Model::num_layers, " is ",
            value(&Model::num_layers)},
           "list every layer once"}),
      needs(&Model::window_attn_skip_freq, &Model::window_size,
            {.fix = {"add ", &Model::window_size, " left,right"}}),
      excludes(&Model::apply_residual_connection_post_layernorm,
               is(&Model::norm_placement, "post")),
  };
}

Rules query_key_norm_rules() {
  return {
      needs(is(&Model::qk_layernorm_scope, "all_heads"), &Model::qk_layernorm,
            {.fix = {"add ", &Model::qk_layernorm}}),
      refuse({is(&Model::qk_layernorm_scope, "all_heads"), &Model::qk_layernorm,
              without(is(&Model::normalization, "RMSNorm"))},
             "needs RMSNorm", {"add ", &Model::normalization, " RMSNorm"}),
  };
}

}  // namespace

Problems validate_model(const Settings& settings, const FieldNames& skip) {
  static const Rules rules = {size_rules(),      position_rules(),
                              attention_rules(), query_key_norm_rules(),
                              gate_rules(),      moe_rules(),
                              sharding_rules(),  context_sharding_rules(),
                              layout_rules(),    recomputed_module_rules()};
  return evaluate(rules, settings, skip);
}

Problems validate_model(const TransformerConfig& model) {
  Settings settings;
  settings.model = model;
  return validate_model(settings);
}

}  // namespace megatron
