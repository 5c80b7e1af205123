#include "megatron/models/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using Config = TransformerConfig;
using Table = FieldTable<Config>;

constexpr std::int64_t kWide = std::int64_t{1} << 24, kLong = std::int64_t{1} << 31,
                       kMostExperts = 100'000;

void add_sizes(Table& t) {
  t.field("num_layers", &Config::num_layers, "");
  t.field("hidden_size", &Config::hidden_size, "");
  t.field("num_attention_heads", &Config::num_attention_heads, "");
  t.field("ffn_hidden_size", &Config::ffn_hidden_size, "");
  t.field("kv_channels", &Config::kv_channels, "");
  t.field("group_query_attention", &Config::group_query_attention, "");
  t.field("num_query_groups", &Config::num_query_groups, "");
  t.field("max_position_embeddings", &Config::max_position_embeddings, "");
  t.field("vocab_size", &Config::vocab_size, "");
  t.field("untie_embeddings_and_output_weights", &Config::untie_embeddings_and_output_weights, "");
}

void add_layers(Table& t) {
  t.field("normalization", &Config::normalization, "");
  t.field("norm_placement", &Config::norm_placement, "");
  t.field("norm_epsilon", &Config::norm_epsilon, "");
  t.field("apply_layernorm_1p", &Config::apply_layernorm_1p, "");
  t.field("apply_residual_connection_post_layernorm",
          &Config::apply_residual_connection_post_layernorm, "");
  t.field("qk_layernorm", &Config::qk_layernorm, "");
  t.field("qk_layernorm_scope", &Config::qk_layernorm_scope, "");
  t.field("clip_qkv", &Config::clip_qkv, "");
  t.field("activation", &Config::activation, "");
  t.field("gated_linear_unit", &Config::gated_linear_unit, "");
  t.field("activation_func_clamp_value", &Config::activation_func_clamp_value, "");
  t.field("glu_linear_offset", &Config::glu_linear_offset, "");
  t.field("add_bias_linear", &Config::add_bias_linear, "");
  t.field("add_qkv_bias", &Config::add_qkv_bias, "");
  t.field("window_size", &Config::window_size, "");
  t.field("window_layers", &Config::window_layers, "");
  t.field("softmax_scale", &Config::softmax_scale, "");
}

void add_positions(Table& t) {
  t.field("position_embedding_type", &Config::position_embedding_type, "");
  t.field("rotary_base", &Config::rotary_base, "");
  t.field("rotary_percent", &Config::rotary_percent, "");
  t.field("rotary_interleaved", &Config::rotary_interleaved, "");
  t.field("rope_scaling_type", &Config::rope_scaling_type, "");
  t.field("rope_scaling_factor", &Config::rope_scaling_factor, "");
  t.field("rope_low_freq_factor", &Config::rope_low_freq_factor, "");
  t.field("rope_high_freq_factor", &Config::rope_high_freq_factor, "");
  t.field("rope_original_max_position_embeddings", &Config::rope_original_max_position_embeddings,
          "");
  t.field("yarn_beta_fast", &Config::yarn_beta_fast, "");
  t.field("yarn_beta_slow", &Config::yarn_beta_slow, "");
  t.field("yarn_mscale", &Config::yarn_mscale, "");
  t.field("yarn_mscale_all_dim", &Config::yarn_mscale_all_dim, "");
  t.field("yarn_correction_range_round_to_int", &Config::yarn_correction_range_round_to_int, "");
  t.field("yarn_attention_factor", &Config::yarn_attention_factor, "");
}

void add_experts(FieldTable<MoeConfig>& t) {
  using M = MoeConfig;
  t.field("num_experts", &M::num_experts, "");
  t.field("moe_layers", &M::layers, "");
  t.field("moe_ffn_hidden_size", &M::ffn_hidden_size, "");
  t.field("moe_shared_expert_intermediate_size", &M::shared_expert_intermediate_size, "");
  t.field("moe_shared_expert_gate", &M::shared_expert_gate, "");
  t.field("moe_latent_size", &M::latent_size, "");
  t.field("moe_router_topk", &M::router_topk, "");
  t.field("moe_router_score_function", &M::router_score_function, "");
  t.field("moe_router_pre_softmax", &M::router_pre_softmax, "");
  t.field("moe_router_topk_scaling_factor", &M::router_topk_scaling_factor, "");
  t.field("moe_router_num_groups", &M::router_num_groups, "");
  t.field("moe_router_group_topk", &M::router_group_topk, "");
  t.field("moe_router_enable_expert_bias", &M::router_enable_expert_bias, "");
  t.field("moe_expert_capacity_factor", &M::expert_capacity_factor, "");
  t.field("moe_pad_expert_input_to_capacity", &M::pad_expert_input_to_capacity, "");
  t.field("moe_token_drop_policy", &M::token_drop_policy, "");
  t.field("moe_apply_probs_on_input", &M::apply_probs_on_input, "");
}

void add_balancing(FieldTable<MoeConfig>& t) {
  using M = MoeConfig;
  t.field("moe_router_dtype", &M::router_dtype, "");
  t.field("moe_router_bias_update_rate", &M::router_bias_update_rate, "");
  t.field("moe_router_load_balancing_type", &M::router_load_balancing_type, "");
  t.field("moe_aux_loss_coeff", &M::aux_loss_coeff, "");
  t.field("moe_z_loss_coeff", &M::z_loss_coeff, "");
  t.field("moe_input_jitter_eps", &M::input_jitter_eps, "");
}

Json scalar_to_json(const Field& field, const std::string& text) {
  switch (field.kind) {
    case ValueKind::boolean:
      return boolean_value(text);
    case ValueKind::integer:
      return integer_value(text);
    case ValueKind::number:
      return number_value(text);
    case ValueKind::text:
      break;
  }
  return text;
}

Json member_to_json(const Field& field, const Config& config) {
  const std::vector<std::string> values = field.get(&config);
  if (field.is_list && (field.kind != ValueKind::text || !field.choices.empty())) {
    Json list = Json::array();
    for (const std::string& value : values) list.push_back(scalar_to_json(field, value));
    return list;
  }
  return values.empty() ? Json(nullptr) : scalar_to_json(field, values.front());
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

void check_between(std::int64_t value, std::int64_t least, std::int64_t most, const char* name,
                   const std::string& source) {
  if (value < least || value > most) {
    throw UserError({source + ": field '" + name + "' must be between " + std::to_string(least) +
                         " and " + std::to_string(most),
                     std::to_string(value), ""});
  }
}

void check_size(std::int64_t value, std::int64_t most, const char* name,
                const std::string& source) {
  check_between(value, 1, most, name, source);
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
  check_between(moe.num_experts, 0, kMostExperts, "num_experts", source);
  if (moe.num_experts == 0) return;
  check_between(moe.ffn_hidden_size, 0, kWide, "moe_ffn_hidden_size", source);
  check_between(moe.shared_expert_intermediate_size, 0, kWide,
                "moe_shared_expert_intermediate_size", source);
  check_between(moe.latent_size, 0, kWide, "moe_latent_size", source);
  check_between(moe.router_topk, 1, moe.num_experts, "moe_router_topk", source);
  check_layer_list(moe.layers, c.num_layers, "moe_layers", source);
  for (const auto& [name, value] : {std::pair("moe_router_num_groups", moe.router_num_groups),
                                    std::pair("moe_router_group_topk", moe.router_group_topk)}) {
    if (value) check_between(*value, 0, moe.num_experts, name, source);
  }
}

void clear_rope_scaling(Config& c) {
  const Config d;
  const bool llama3 = c.rope_scaling_type == RopeScaling::llama3,
             yarn = c.rope_scaling_type == RopeScaling::yarn;
  if (c.rope_scaling_type == RopeScaling::none) c.rope_scaling_factor = d.rope_scaling_factor;
  if (!llama3) {
    c.rope_low_freq_factor = d.rope_low_freq_factor;
    c.rope_high_freq_factor = d.rope_high_freq_factor;
  }
  if (!llama3 && !yarn)
    c.rope_original_max_position_embeddings = d.rope_original_max_position_embeddings;
  if (yarn) return;
  c.yarn_beta_fast = d.yarn_beta_fast;
  c.yarn_beta_slow = d.yarn_beta_slow;
  c.yarn_mscale = d.yarn_mscale;
  c.yarn_mscale_all_dim = d.yarn_mscale_all_dim;
  c.yarn_correction_range_round_to_int = d.yarn_correction_range_round_to_int;
  c.yarn_attention_factor = d.yarn_attention_factor;
}

void clear_rotary(Config& c) {
  const Config d;
  c.rotary_base = d.rotary_base;
  c.rotary_percent = d.rotary_percent;
  c.rotary_interleaved = d.rotary_interleaved;
  c.rope_scaling_type = d.rope_scaling_type;
}

void canonicalize_positions(Config& c) {
  if (c.position_embedding_type == PositionEmbedding::yarn) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.rope_scaling_type = RopeScaling::yarn;
  }
  if (c.position_embedding_type != PositionEmbedding::rope) clear_rotary(c);
  clear_rope_scaling(c);
  if (c.position_embedding_type != PositionEmbedding::learned_absolute)
    c.max_position_embeddings = 0;
}

bool all_are(const std::vector<std::int64_t>& layers, std::int64_t value) {
  return std::ranges::count(layers, value) == std::ssize(layers);
}

void canonicalize_window(Config& c) {
  if (!c.window_layers.empty() && all_are(c.window_layers, 0)) c.window_size.reset();
  if (c.window_size && (*c.window_size)[0] < 0) c.window_size.reset();
  if (c.window_size) (*c.window_size)[1] = 0;
  if (!c.window_size || all_are(c.window_layers, 1)) c.window_layers.clear();
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
  }
}

void canonicalize_experts(Config& c) {
  MoeConfig& moe = c.moe;
  if (!moe.layers.empty() && all_are(moe.layers, 0)) moe.num_experts = 0;
  if (moe.num_experts == 0) {
    moe = MoeConfig{};
    return;
  }
  moe.layer_freq = MoeConfig{}.layer_freq;
  if (all_are(moe.layers, 1)) moe.layers.clear();
  if (moe.layers.empty()) c.ffn_hidden_size = moe.ffn_hidden_size;  // no MLP is dense
  if (moe.shared_expert_intermediate_size == 0)
    moe.shared_expert_gate = moe.shared_expert_overlap = false;
  if (!moe.expert_capacity_factor) {
    moe.pad_expert_input_to_capacity = false;
    moe.token_drop_policy = MoeConfig{}.token_drop_policy;
  }
  canonicalize_router(moe);
}

/// Returns whether older checkpoints lack a member, which has its default there.
bool may_be_absent(std::string_view name) {
  constexpr std::array<std::string_view, 4> kLater{
      "activation_func_clamp_value", "glu_linear_offset", "qk_layernorm_scope", "clip_qkv"};
  return is_moe_member(name) || std::ranges::find(kLater, name) != kLater.end();
}

}  // namespace

const FieldTable<TransformerConfig>& forward_members() {
  static const Table table = [] {
    Table t;
    add_sizes(t);
    add_layers(t);
    add_positions(t);
    FieldTable<MoeConfig> experts;
    add_experts(experts);
    t.include(&Config::moe, experts);
    return t;
  }();
  return table;
}

const FieldTable<TransformerConfig>& training_members() {
  static const Table table = [] {
    Table t;
    t.field("hidden_dropout", &Config::hidden_dropout, "");
    t.field("attention_dropout", &Config::attention_dropout, "");
    t.field("init_method_std", &Config::init_method_std, "");
    t.field("embedding_init_method_std", &Config::embedding_init_method_std, "");
    t.field("init_method_xavier_uniform", &Config::init_method_xavier_uniform, "");
    t.field("fp32_residual_connection", &Config::fp32_residual_connection, "");
    t.field("attention_softmax_in_fp32", &Config::attention_softmax_in_fp32, "");
    t.field("apply_query_key_layer_scaling", &Config::apply_query_key_layer_scaling, "");
    FieldTable<MoeConfig> balancing;
    add_balancing(balancing);
    t.include(&Config::moe, balancing);
    return t;
  }();
  return table;
}

bool is_moe_member(std::string_view name) {
  return name == "num_experts" || name.starts_with("moe_");
}

Json architecture_to_json(const TransformerConfig& config) {
  Json json = Json::object();
  for (const auto* table : {&forward_members(), &training_members()}) {
    for (const Field& field : table->set().fields) {
      if (config.moe.num_experts > 0 || !is_moe_member(field.name))
        json[field.name] = member_to_json(field, config);
    }
  }
  return json;
}

TransformerConfig architecture_from_json(const Json& json, const std::string& source) {
  TransformerConfig config;
  std::size_t known = 0;
  const JsonCursor cursor(json, source);
  for (const auto* table : {&forward_members(), &training_members()}) {
    for (const Field& field : table->set().fields) {
      if (may_be_absent(field.name) && !json.contains(field.name)) continue;
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
  check_size(c.num_layers, 10'000, "num_layers", source);
  check_size(c.hidden_size, kWide, "hidden_size", source);
  check_size(c.num_attention_heads, kWide, "num_attention_heads", source);
  check_size(c.vocab_size, kLong, "vocab_size", source);
  check_experts(c, source);
  const TransformerConfig full = canonical_architecture(c);
  check_size(full.ffn_hidden_size, kWide, "ffn_hidden_size", source);
  check_size(full.kv_channels, kWide, "kv_channels", source);
  check_size(full.num_query_groups, kWide, "num_query_groups", source);
  if (c.position_embedding_type == PositionEmbedding::learned_absolute)
    check_size(c.max_position_embeddings, kLong, "max_position_embeddings", source);
  if (full.num_attention_heads % full.num_query_groups != 0) {
    throw UserError({source + ": num_attention_heads must be a multiple of num_query_groups",
                     std::to_string(full.num_attention_heads) + " heads, " +
                         std::to_string(full.num_query_groups) + " groups",
                     ""});
  }
  check_layer_list(c.window_layers, c.num_layers, "window_layers", source);
  if (const Problems problems = validate_model(full); !problems.empty()) {
    UserError::Parts first = problems.list().front();
    first.what = source + ": " + first.what;
    throw UserError(first);
  }
}

TransformerConfig canonical_architecture(TransformerConfig c) {
  resolve(c);
  c.group_query_attention = c.num_query_groups != c.num_attention_heads;
  if (c.add_bias_linear) c.add_qkv_bias = false;
  if (!c.qk_layernorm) c.qk_layernorm_scope = QkNormScope::head;
  if (c.softmax_scale && c.kv_channels > 0 &&
      *c.softmax_scale == 1.0 / std::sqrt(static_cast<double>(c.kv_channels)))
    c.softmax_scale.reset();
  canonicalize_positions(c);
  canonicalize_window(c);
  canonicalize_experts(c);
  return c;
}

std::vector<ArchitectureDifference> forward_differences(const TransformerConfig& left,
                                                        const TransformerConfig& right) {
  const TransformerConfig a = canonical_architecture(left), b = canonical_architecture(right);
  std::vector<ArchitectureDifference> differences;
  for (const Field& field : forward_members().set().fields) {
    const auto left_values = field.get(&a), right_values = field.get(&b);
    if (left_values != right_values)
      differences.push_back({field.name, join_values(left_values), join_values(right_values)});
  }
  return differences;
}

}  // namespace megatron
