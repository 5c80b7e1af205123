// Reads and writes config.json by the rows of a family.
#include "megatron/models/hf/hf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/field_values.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings_tables.h"
#include "megatron/models/hf/config_reader.h"

namespace megatron {
namespace {

void reject_unsupported_features(const ConfigReader& config, const HfFamily* family) {
  const ConfigReader quantization = config.section("quantization_config");
  if (config.has("quantization_config") && quantization.text("quant_method", "") != "mxfp4")
    config.unsupported("quantization_config", "use unquantised weights, or MXFP4");
  for (const char* key :
       {"is_encoder_decoder", "add_cross_attention", "scale_attn_by_inverse_layer_idx"}) {
    const bool is_known = family != nullptr && family->network == "t5" &&
                          key == std::string_view("is_encoder_decoder");
    if (config.boolean(key, false) && !is_known) config.unsupported(key, "set it to false");
  }
}

/// Model types of transformers that need what this version does not have.
struct MissingFeature {
  std::string_view name, model_types;
};
constexpr MissingFeature kMissingFeatures[] = {
    {"sparse attention with an indexer (DSA)", "deepseek_v32 glm_moe_dsa"},
    {"compressed sparse attention and hyper-connections", "deepseek_v4"},
    {"vision", "qwen3_5 qwen3_5_moe"},
    {"hyper-connections and embeddings of n-grams", "qwen4_exp qwen4_exp_text"},
    {"delta nets with a decay per channel (KDA)", "kimi_linear"},
    {"linear attention (lightning attention)", "minimax"},
    {"state-space layers of the first kind (Mamba-1)", "mamba falcon_mamba jamba zamba"},
    {"shared attention blocks with adapters", "zamba2"},
    {"parallel attention and Mamba in one layer, with multipliers", "falcon_h1"},
    {"recurrent layers", "recurrent_gemma rwkv"},
    {"short convolutions", "lfm2 lfm2_moe"},
    {"embeddings in each layer", "gemma3n_text gemma4_text"},
    {"experts without computation", "longcat_flash"},
    {"ALiBi positions", "bloom mpt"},
    {"a first layer without a norm and heads without biases", "modernbert"}};

/// Returns what to do about a model whose text model has the type `text` ("": it has none).
std::string supported_types(const std::string& text) {
  return (find_hf_family(text) == nullptr
              ? ""
              : "save its text model alone, of model_type '" + text + "'; ") +
         "supported: " + joined_text(hf_families(), ", ", &HfFamily::model_type);
}

/// Throws UserError if the model type is known to need a feature that is missing.
void refuse_missing_feature(const std::string& model_type, const std::string& source,
                            const std::string& fix) {
  for (const MissingFeature& feature : kMissingFeatures)
    if (std::ranges::count(split_words(std::string(feature.model_types)), model_type) > 0)
      throw UserError({source + ": model_type '" + model_type + "'",
                       "needs " + std::string(feature.name) + ", not in this version", fix});
}

/// Returns whether the norms of latents differ, whose epsilon is that of the other norms.
bool follows_norm_epsilon(const ArchitectureDifference& d) {
  return d.member == "latent_norm_epsilon" && d.left == "none";
}

/// Returns "--flag = value (family: value)" with the flag that sets the member. Two members follow
/// from other flags unless a Hugging Face model sets them.
std::string difference_text(const ArchitectureDifference& d, const TransformerConfig& model,
                            const std::string& type) {
  const MoeConfig& moe = model.moe;
  std::string flag = setting_of_member(d.member), value = d.left;
  if (const Field* field = settings_table().set().find_name(flag)) flag = field->flag();
  if (follows_norm_epsilon(d)) {
    flag = Setting(&TransformerConfig::norm_epsilon).flag() + " of the norms of latents";
    value = number_text(model.norm_epsilon);
  }
  if (d.member == "moe_router_group_score_topk" && moe.router_group_score_topk == 0) {
    flag = Setting(&MoeConfig::router_topk).flag() + " / " +
           Setting(&MoeConfig::router_group_topk).flag();
    value = number_text(static_cast<double>(moe.router_topk) /
                        static_cast<double>(moe.router_group_topk.value_or(1)));
  }
  return flag + " = " + value + " (" + type + ": " + d.right + ")";
}

/// Throws HfMismatch unless the written config.json reads back as the same forward function.
void check_expressed(const TransformerConfig& model, const HfFamily& family, const Json& json) {
  const std::string& type = family.model_type;
  const auto differences =
      forward_differences(model, parse_hf_config(json, type + " config.json").model);
  std::string remedy;
  if (differences.size() == 1 && follows_norm_epsilon(differences.front()))
    remedy = "train with " + Setting(&TransformerConfig::norm_epsilon).flag() + " " +
             differences.front().right + ", or ";
  if (!differences.empty())
    throw HfMismatch(type,
                     joined_text(differences, ", ",
                                 [&](const ArchitectureDifference& d) {
                                   return difference_text(d, model, type);
                                 }),
                     differences.size(), remedy);
  if (family.needs_even_heads && model.hidden_size % model.num_attention_heads != 0)
    throw HfMismatch(type, "--hidden-size is no multiple of --num-attention-heads", 1);
}

/// Returns whether the original config.json already describes the model, so that its spelling may
/// stay.
bool is_equivalent(const HfConfig& there, const TransformerConfig& model) {
  for (const auto& [name, origin] : there.given_training_fields) {
    const Field& field = *training_members().set().find_name(name);
    if (origin != kFamilyHasNone && field.get(&there.model) != field.get(&model)) return false;
  }
  return there.model.max_position_embeddings == model.max_position_embeddings &&
         forward_differences(there.model, model).empty();
}

void write_model(const TransformerConfig& model, const HfFamily& family, Json& json) {
  TransformerConfig full = canonical_architecture(model);
  full.max_position_embeddings = model.max_position_embeddings;
  json["model_type"] = family.model_type;
  write_keys(family.keys, full, json);
}

/// Uses the spelling that the file has: "dtype" since transformers 4.56, "torch_dtype" before.
void write_dtype(std::string_view dtype, Json& json) {
  const bool old_only = json.contains("torch_dtype") && !json.contains("dtype");
  if (!old_only) json["dtype"] = std::string(dtype);
  if (json.contains("torch_dtype")) json["torch_dtype"] = std::string(dtype);
}

}  // namespace

HfMismatch::HfMismatch(const std::string& model_type, const std::string& got, std::size_t members,
                       const std::string& remedy)
    : UserError({"the model cannot be written as Hugging Face model_type '" + model_type + "'", got,
                 remedy + "keep it in --format megatron"}),
      num_members(members) {}

HfConfig parse_hf_config(const Json& json, const std::string& source) {
  const ConfigReader config(json, source);
  const std::string model_type = JsonCursor(json, source)["model_type"].text();
  const HfFamily* family = find_hf_family(model_type);
  const std::string text =
      family == nullptr ? config.section("text_config").text("model_type", "") : "";
  if (family == nullptr)
    for (const std::string& type : {model_type, text})
      refuse_missing_feature(type, source, supported_types(text));
  reject_unsupported_features(config, family);
  if (family == nullptr) config.unsupported("model_type", supported_types(text));
  HfConfig result{.model = family->defaults, .model_type = model_type};
  read_keys(family->keys, config, result);
  TransformerConfig& model = result.model;
  if (model.num_query_groups == 0) model.num_query_groups = model.num_attention_heads;
  model.group_query_attention = model.num_query_groups != model.num_attention_heads;
  result.given_training_fields.emplace("hidden_dropout", kFamilyHasNone);
  check_sizes(result.model, source);
  return result;
}

Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original) {
  const HfFamily* family = find_hf_family(model_type);
  MEGATRON_CHECK(family != nullptr, "no family of model_type ", model_type);
  if (family->defaults.moe.num_experts > 0 && model.moe.num_experts == 0)
    throw HfMismatch(family->model_type, "it needs --num-experts", 10);  // and their other flags
  const bool same = original != nullptr && original->value("model_type", "") == model_type;
  Json json = same ? *original
                   : Json{{"architectures", {family->architecture}},
                          {"bos_token_id", nullptr},
                          {"eos_token_id", nullptr},
                          {"use_cache", true}};
  for (const char* key : {"id2label", "label2id"})  // names that a run gave its classes
    if (!same && original != nullptr && model.num_classes > 1 && original->contains(key))
      json[key] = original->at(key);
  if (!same || !is_equivalent(parse_hf_config(json, "config.json"), model))
    write_model(model, *family, json);
  write_dtype(dtype, json);
  json.erase("quantization_config");
  check_expressed(model, *family, json);
  return json;
}

}  // namespace megatron
