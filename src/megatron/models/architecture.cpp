#include "megatron/models/architecture.h"

#include <algorithm>
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
                {&MambaConfig::state_dim, &MambaConfig::head_dim, &MambaConfig::num_groups}, 1,
                kWidest, source);
  check_between(c.mamba, {&MambaConfig::conv_kernel_dim}, 1, kMostConvTaps, source);
  check_between(c.mamba, {&MambaConfig::num_heads, &MambaConfig::norm_groups}, 0, kWidest, source);
  using Linear = LinearAttentionConfig;
  check_between(c.linear_attention,
                {&Linear::key_head_dim, &Linear::value_head_dim, &Linear::num_key_heads,
                 &Linear::num_value_heads},
                1, kWidest, source);
  check_between(c.linear_attention, {&Linear::conv_kernel_dim}, 1, kMostConvTaps, source);
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
