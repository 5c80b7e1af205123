#include "megatron/models/architecture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using Config = TransformerConfig;
using Table = FieldTable<Config>;

constexpr const char* kGroupScore = "moe_router_group_score_topk";
constexpr std::int64_t kLong = std::int64_t{1} << 31;

/// Returns the settings that have a role in the architecture.
Table settings_of(ArchitectureRole role) {
  Table table;
  for (const Field& field : transformer_table().set().fields)
    if (field.architecture == role) table.add_field(field);
  return table;
}

/// Declares a list with a number for each layer, which a flag gives by a pattern.
Field layer_list(const char* name, std::vector<std::int64_t> (*get)(const Config&),
                 void (*set)(Config&, const std::vector<std::int64_t>&)) {
  Field field;
  field.name = name;
  field.kind = ValueKind::integer;
  field.is_list = true;
  field.set = [set](void* config, std::span<const std::string> values) {
    std::vector<std::int64_t> layers;
    read_values(layers, values);
    if (std::ranges::any_of(layers, [](std::int64_t value) { return value < 0 || value > 9; }))
      throw FieldError{"lists a number other than 0 and 1"};
    set(*static_cast<Config*>(config), layers);
  };
  field.get = [get](const void* config) {
    return write_values(get(*static_cast<const Config*>(config)));
  };
  return field;
}

/// Returns the values of a member as checkpoints store them; empty if unset.
std::vector<std::string> stored_values(const Field& field, const Config& config) {
  std::vector<std::string> values = field.get(&config);
  if (values.empty() && !field.none_text.empty()) values.push_back(field.none_text);
  return values;
}

/// Returns whether a member belongs to the mixture of experts.
bool is_moe_member(const std::string& name) {
  return name == "num_experts" || name.starts_with("moe_");
}

Json member_to_json(const Field& field, const Config& config) {
  const std::vector<std::string> values = stored_values(field, config);
  if (field.is_list && (field.kind != ValueKind::text || !field.choices.empty()))
    return typed_values<Json>(field, values);
  return values.empty() ? Json(nullptr) : typed_value<Json>(field, values.front());
}

std::string scalar_from_json(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (value.is_object() || value.is_array()) throw FieldError{"must be a single value"};
  return value.dump();
}

void read_member(const Field& field, const JsonCursor& cursor, Config& config) {
  const Json& value = *cursor;
  try {
    std::vector<std::string> values;
    if (value.is_array()) {
      for (const Json& item : value) values.push_back(scalar_from_json(item));
    } else {
      values.push_back(scalar_from_json(value));
    }
    field.set(&config, values);
  } catch (const FieldError& error) {
    throw UserError({cursor.name() + ' ' + error.reason, "", error.fix});
  }
}

void check_between(std::int64_t value, std::int64_t least, std::int64_t most,
                   const std::string& name, const std::string& source) {
  if (value < least || value > most) {
    throw UserError({source + ": field '" + name + "' must be between " + std::to_string(least) +
                         " and " + std::to_string(most),
                     std::to_string(value), ""});
  }
}

template <class T>
void check_between(const T& config, std::initializer_list<std::int64_t T::*> members,
                   std::int64_t least, std::int64_t most, const std::string& source) {
  for (const auto member : members)
    check_between(config.*member, least, most, Setting(member).name(), source);
}

void check_layer_list(const std::vector<std::int64_t>& list, std::int64_t num_layers,
                      const char* name, const std::string& source) {
  if (list.empty() || static_cast<std::int64_t>(list.size()) == num_layers) return;
  throw UserError(
      {source + ": " + name + " must name every layer",
       std::to_string(list.size()) + " entries for " + std::to_string(num_layers) + " layers", ""});
}

/// Checks the sizes of the experts as they were given.
void check_experts(const Config& c, const std::string& source) {
  const MoeConfig& moe = c.moe;
  check_between(moe, {&MoeConfig::num_experts}, 0, kMostExperts, source);
  if (moe.num_experts == 0) return;
  check_between(moe,
                {&MoeConfig::ffn_hidden_size, &MoeConfig::shared_expert_intermediate_size,
                 &MoeConfig::latent_size},
                0, kWidest, source);
  check_between(moe, {&MoeConfig::router_topk}, 1, moe.num_experts, source);
  check_layer_list(expert_layers(c), c.num_layers, "moe_layers", source);
  for (const auto member : {&MoeConfig::router_num_groups, &MoeConfig::router_group_topk})
    check_between((moe.*member).value_or(0), 0, moe.num_experts, Setting(member).name(), source);
  const std::int64_t groups = std::max<std::int64_t>(1, moe.router_num_groups.value_or(0));
  check_between(moe.router_group_score_topk, 0, moe.num_experts / groups, kGroupScore, source);
}

/// Gives members their defaults.
template <class T, class... V>
void reset(T& object, V T::*... members) {
  const T initial;
  ((object.*members = initial.*members), ...);
}

void canonicalize_positions(Config& c) {
  if (c.position_embedding_type == PositionEmbedding::yarn) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.rope_scaling_type = RopeScaling::yarn;
  }
  if (!c.has_rotary())
    reset(c, &Config::rotary_base, &Config::rotary_percent, &Config::rotary_interleaved,
          &Config::rotary_base_local, &Config::no_rope_freq, &Config::rope_scaling_type);
  if (c.position_embedding_type != PositionEmbedding::learned_absolute)
    reset(c, &Config::max_position_embeddings);
  if (!c.has_relative_bias())
    reset(c, &Config::relative_attention_num_buckets, &Config::relative_attention_max_distance,
          &Config::relative_attention_per_layer);
  const bool llama3 = c.rope_scaling_type == RopeScaling::llama3,
             yarn = c.rope_scaling_type == RopeScaling::yarn;
  if (c.rope_scaling_type == RopeScaling::none) reset(c, &Config::rope_scaling_factor);
  if (!llama3) reset(c, &Config::rope_low_freq_factor, &Config::rope_high_freq_factor);
  if (!llama3 && !yarn) reset(c, &Config::rope_original_max_position_embeddings);
  if (!yarn)
    reset(c, &Config::yarn_beta_fast, &Config::yarn_beta_slow, &Config::yarn_mscale,
          &Config::yarn_mscale_all_dim, &Config::yarn_correction_range_round_to_int,
          &Config::yarn_attention_factor);
}

/// Gives sizes that the kind of attention does not use one value each.
void canonicalize_latents(Config& c) {
  if (c.multi_latent_attention) {
    c.kv_channels = c.v_head_dim;
    c.add_qkv_bias = false;
    if (!c.qk_layernorm || c.latent_norm_epsilon == c.norm_epsilon) c.latent_norm_epsilon.reset();
    return;
  }
  reset(c, &Config::q_lora_rank, &Config::kv_lora_rank, &Config::qk_head_dim,
        &Config::qk_pos_emb_head_dim, &Config::v_head_dim, &Config::latent_norm_epsilon);
}

/// Returns whether a member describes multi-latent attention; other models do not store it.
bool is_latent_member(std::string_view name) {
  return name == "multi_latent_attention" || name.ends_with("_lora_rank") ||
         name == "latent_norm_epsilon" || name.starts_with("qk_head") ||
         name.starts_with("qk_pos_emb") || name == "v_head_dim";
}

/// Returns whether a member describes multi-token prediction; other models do not store it.
bool is_mtp_member(std::string_view name) { return name.starts_with("mtp_"); }

/// Returns whether a member describes encoders; checkpoints store it where it is not the default.
bool is_encoder_member(std::string_view name) {
  return name.starts_with("bert_") || name == "num_classes" || name == "num_tokentypes" ||
         name == "embedding_norm" || name == "position_offset";
}

/// Returns whether a member describes T5; other models do not store it.
bool is_t5_member(std::string_view name) {
  return name == "decoder_num_layers" || name.starts_with("relative_attention_");
}

/// Returns whether a member describes recurrent layers; checkpoints store it where it is not the
/// default.
bool is_recurrent_member(std::string_view name) {
  return name.starts_with("mamba_") || name.starts_with("linear_") ||
         name.starts_with("experimental_");
}

void canonicalize_window(Config& c) {
  const std::vector<std::int64_t> windows = windowed_layers(c), nope = nope_layers(c);
  if (!windows.empty() && !std::ranges::count(windows, 1)) {
    c.window_size.reset();
    c.attention_chunk_size = 0;
  }
  if (c.window_size && (*c.window_size)[0] < 0) c.window_size.reset();
  if (c.window_size) (*c.window_size)[1] = 0;
  const bool is_local = c.window_size || c.attention_chunk_size > 0;
  const bool rotates_alike =
      c.rotary_base_local == c.rotary_base && c.rope_scaling_type == RopeScaling::none;
  if (!is_local || rotates_alike) c.rotary_base_local.reset();
  set_windows(c, is_local ? windows : std::vector<std::int64_t>());
  set_nope(c, nope);
  if (c.no_rope_freq.empty() && !c.attn_temperature_all_layers) c.attn_temperature_scale = 0;
  if (c.attn_temperature_scale == 0)
    reset(c, &Config::attn_temperature_floor, &Config::attn_temperature_all_layers);
}

/// Gives what no layer has one value each, and sizes that follow from others their own.
void canonicalize_blocks(Config& c) {
  const bool has_attention =
                 has_mixer(c, MixerKind::attention) || has_mixer(c, MixerKind::latent_attention),
             has_any_feed_forward = has_feed_forward(c, FeedForwardKind::mlp) ||
                                    has_feed_forward(c, FeedForwardKind::experts);
  if (!has_mixer(c, MixerKind::mamba)) {
    c.mamba = {};
  } else {
    c.mamba.num_heads = c.recurrent_sizes(MixerKind::mamba).heads;
    if (c.mamba.norm_groups == 0) c.mamba.norm_groups = c.mamba.num_groups;
  }
  if (!has_mixer(c, MixerKind::gated_delta_net)) c.linear_attention = {};
  if (!c.apply_layernorm_1p) c.linear_attention.norm_1p = true;
  if (!has_attention) {
    c.num_attention_heads = c.num_query_groups = 1;
    c.kv_channels = c.hidden_size;
    if (c.has_rotary()) c.position_embedding_type = PositionEmbedding::none;
    reset(c, &Config::multi_latent_attention, &Config::qk_layernorm, &Config::qk_l2_norm,
          &Config::attention_output_gate, &Config::softmax_type, &Config::clip_qkv,
          &Config::window_size, &Config::attention_chunk_size, &Config::softmax_scale,
          &Config::attn_logit_softcapping, &Config::add_qkv_bias);
  }
  if (!has_any_feed_forward) {
    c.ffn_hidden_size = c.hidden_size;
    reset(c, &Config::activation, &Config::gated_linear_unit, &Config::activation_func_clamp_value,
          &Config::glu_linear_offset);
  }
  if (!has_attention && !has_any_feed_forward) c.add_bias_linear = false;
}

void canonicalize_router(MoeConfig& moe) {
  if (moe.router_score_function != RouterScore::softmax) moe.router_pre_softmax = false;
  const double factor = moe.router_topk_scaling_factor.value_or(1);
  if (factor == 0 || factor == 1) moe.router_topk_scaling_factor.reset();
  const std::int64_t num_groups = moe.router_num_groups.value_or(0);
  const bool keeps_all_groups = moe.router_group_topk.value_or(0) == num_groups;
  if (num_groups == 0 || moe.router_group_topk.value_or(0) == 0 || keeps_all_groups) {
    moe.router_num_groups.reset();
    moe.router_group_topk.reset();
    moe.router_group_score_topk = 0;
  } else if (moe.router_topk % *moe.router_group_topk == 0 &&
             moe.router_group_score_topk == moe.router_topk / *moe.router_group_topk) {
    moe.router_group_score_topk = 0;
  }
}

void canonicalize_experts(Config& c) {
  MoeConfig& moe = c.moe;
  if (!has_feed_forward(c, FeedForwardKind::experts)) moe.num_experts = 0;
  if (moe.num_experts == 0) {
    moe = MoeConfig{};
    return;
  }
  set_experts(c, expert_layers(c));
  if (!has_feed_forward(c, FeedForwardKind::mlp)) c.ffn_hidden_size = moe.ffn_hidden_size;
  if (moe.shared_expert_intermediate_size == 0)
    moe.shared_expert_gate = moe.shared_expert_overlap = false;
  if (!moe.expert_capacity_factor) {
    moe.pad_expert_input_to_capacity = false;
    moe.token_drop_policy = MoeConfig{}.token_drop_policy;
  }
  canonicalize_router(moe);
}

}  // namespace

const FieldTable<TransformerConfig>& forward_members() {
  static const Table table = [] {
    Table t = settings_of(ArchitectureRole::forward);
    // What no flag of the architecture names: the vocabulary is that of the tokenizer, the layers
    // follow from a pattern, and an encoder without a head cannot be trained.
    t.field("vocab_size", &Config::vocab_size, "");
    t.add_field(layer_list("window_layers", windowed_layers, set_windows));
    t.field("bert_lm_head", &Config::bert_lm_head, "").older_checkpoints_lack_it();
    t.field("latent_norm_epsilon", &Config::latent_norm_epsilon, "").older_checkpoints_lack_it();
    t.custom(
        kGroupScore, ValueKind::integer,
        [](Config& config, std::span<const std::string> values) {
          read_values(config.moe.router_group_score_topk, values);
        },
        [](const Config& config) { return write_values(config.moe.router_group_score_topk); }, "");
    Field nope = layer_list("nope_layers", nope_layers, set_nope);
    nope.older_checkpoints_lack_it = true;
    t.add_field(nope);
    Field linear = layer_list("linear_layers", linear_attention_layers, set_linear_attention);
    linear.older_checkpoints_lack_it = true;
    t.add_field(linear);
    t.add_field(layer_list("moe_layers", expert_layers, set_experts));
    return t;
  }();
  return table;
}

const FieldTable<TransformerConfig>& training_members() {
  static const Table table = settings_of(ArchitectureRole::training);
  return table;
}

std::string setting_of_member(const std::string& member) {
  if (member == "linear_layers") return Setting(&LinearAttentionConfig::freq).name();
  return member == "window_layers" ? "window_attn_skip_freq"
         : member == "nope_layers" ? "no_rope_freq"
         : member == "moe_layers"  ? "moe_layer_freq"
                                   : member;
}

Json architecture_to_json(const TransformerConfig& config) {
  Json json = Json::object();
  for (const auto* table : {&forward_members(), &training_members()}) {
    for (const Field& field : table->set().fields) {
      if ((config.moe.num_experts > 0 || !is_moe_member(field.name)) &&
          (config.multi_latent_attention || !is_latent_member(field.name)) &&
          (config.mtp_num_layers > 0 || !is_mtp_member(field.name)) &&
          (config.decoder_num_layers > 0 || !is_t5_member(field.name)) &&
          (!(is_encoder_member(field.name) || is_recurrent_member(field.name)) ||
           field.get(&config) != field.default_values))
        json[field.name] = member_to_json(field, config);
    }
  }
  if (config.hybrid_layer_pattern.empty())
    json.erase(Setting(&Config::hybrid_layer_pattern).name());
  if (config.moe.router_group_score_topk == 0) json.erase(kGroupScore);
  return json;
}

TransformerConfig architecture_from_json(const Json& json, const std::string& source) {
  TransformerConfig config;
  std::size_t known = 0;
  const JsonCursor cursor(json, source);
  for (const auto* table : {&forward_members(), &training_members()}) {
    for (const Field& field : table->set().fields) {
      const bool may_be_absent = field.older_checkpoints_lack_it || is_moe_member(field.name);
      if (may_be_absent && !json.contains(field.name)) continue;
      read_member(field, cursor[field.name], config);
      ++known;
    }
  }
  for (const auto& [name, value] : json.items()) {
    if (json.size() == known) break;
    if (!forward_members().set().find_name(name) && !training_members().set().find_name(name)) {
      throw UserError({source + ": unknown field '" + name + "'", "",
                       "use the version of the program that wrote it"});
    }
  }
  check_sizes(config, source);
  return config;
}

void check_sizes(const TransformerConfig& c, const std::string& source) {
  check_between(c, {&Config::num_layers}, 1, kMostLayers, source);
  check_between(c, {&Config::mtp_num_layers, &Config::decoder_num_layers}, 0, kMostLayers, source);
  check_between(c, {&Config::hidden_size, &Config::num_attention_heads}, 1, kWidest, source);
  check_between(c.vocab_size, 1, kLong, "vocab_size", source);
  check_experts(c, source);
  check_between(c.mamba,
                {&MambaConfig::state_dim, &MambaConfig::head_dim, &MambaConfig::num_groups,
                 &MambaConfig::conv_kernel_dim},
                1, kWidest, source);
  check_between(c.mamba, {&MambaConfig::num_heads, &MambaConfig::norm_groups}, 0, kWidest, source);
  using Linear = LinearAttentionConfig;
  check_between(c.linear_attention,
                {&Linear::conv_kernel_dim, &Linear::key_head_dim, &Linear::value_head_dim,
                 &Linear::num_key_heads, &Linear::num_value_heads},
                1, kWidest, source);
  const TransformerConfig full = canonical_architecture(c);
  check_between(
      full,
      {&Config::ffn_hidden_size, &Config::kv_channels, &Config::kv_lora_rank, &Config::qk_head_dim,
       &Config::qk_pos_emb_head_dim, &Config::v_head_dim, &Config::num_query_groups},
      1, kWidest, source);
  check_between(full, {&Config::q_lora_rank}, 0, kWidest, source);
  if (c.position_embedding_type == PositionEmbedding::learned_absolute)
    check_between(c, {&Config::max_position_embeddings}, 1, kLong, source);
  if (c.has_relative_bias()) {
    check_between(c, {&Config::relative_attention_num_buckets}, 4, kWidest, source);
    check_between(c, {&Config::relative_attention_max_distance}, 2, kLong, source);
  }
  if (full.num_attention_heads % full.num_query_groups != 0) {
    throw UserError({source + ": num_attention_heads must be a multiple of num_query_groups",
                     std::to_string(full.num_attention_heads) + " heads, " +
                         std::to_string(full.num_query_groups) + " groups",
                     ""});
  }
  check_layer_list(windowed_layers(c), c.num_layers, "window_layers", source);
  check_layer_list(nope_layers(c), c.num_layers, "nope_layers", source);
  check_layer_list(linear_attention_layers(c), c.num_layers, "linear_layers", source);
  if (const Problems problems = validate_model(full); !problems.empty()) {
    UserError::Parts first = problems.list().front();
    first.what = source + ": " + first.what;
    throw UserError(first);
  }
}

TransformerConfig canonical_architecture(TransformerConfig c) {
  resolve(c);
  if (!pair_blocks(c)) std::erase(c.hybrid_layer_pattern, '|');
  canonicalize_blocks(c);
  c.group_query_attention = c.num_query_groups != c.num_attention_heads;
  canonicalize_latents(c);
  if (c.add_bias_linear) c.add_qkv_bias = false;
  if (c.normalization != Normalization::LayerNorm) c.add_norm_bias = true;
  if (!c.qk_layernorm) {
    c.qk_layernorm_scope = QkNormScope::head;
    c.qk_layernorm_placement = QkNormPlacement::before_rotary;
  }
  c.num_tokentypes = c.token_types();
  if (c.num_classes > 0) reset(c, &Config::bert_lm_head, &Config::bert_binary_head);
  if (!c.parallel_residual) c.share_block_norm = false;
  if (c.mtp_num_layers < 2) c.mtp_use_repeated_layer = false;
  if (c.softmax_scale && c.kv_channels > 0 && !c.multi_latent_attention &&
      *c.softmax_scale == 1.0 / std::sqrt(static_cast<double>(c.kv_channels)))
    c.softmax_scale.reset();
  canonicalize_positions(c);
  canonicalize_window(c);
  canonicalize_experts(c);
  resolve_layers(c);
  return c;
}

std::vector<ArchitectureDifference> forward_differences(const TransformerConfig& left,
                                                        const TransformerConfig& right) {
  const TransformerConfig a = canonical_architecture(left), b = canonical_architecture(right);
  std::vector<ArchitectureDifference> differences;
  for (const Field& field : forward_members().set().fields) {
    const auto left_values = stored_values(field, a), right_values = stored_values(field, b);
    if (left_values != right_values)
      differences.push_back({field.name, join_values(left_values), join_values(right_values)});
  }
  return differences;
}

}  // namespace megatron
