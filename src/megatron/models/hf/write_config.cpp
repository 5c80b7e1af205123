// Writes TransformerConfig as config.json, with the keys of transformers 5 and their older
// equivalents, so that both versions can read it.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/moe_family.h"
#include "megatron/models/hf/names.h"

namespace megatron {
namespace {

Json rope_parameters(const TransformerConfig& model) {
  Json rope = {{"rope_type", std::string(rope_scaling_name(model.rope_scaling_type))},
               {"rope_theta", model.rotary_base}};
  if (model.rope_scaling_type == RopeScaling::none) return rope;
  rope["factor"] = model.rope_scaling_factor;
  if (model.rope_scaling_type == RopeScaling::linear) return rope;
  rope["original_max_position_embeddings"] = model.rope_original_max_position_embeddings;
  if (model.rope_scaling_type == RopeScaling::llama3) {
    rope["low_freq_factor"] = model.rope_low_freq_factor;
    rope["high_freq_factor"] = model.rope_high_freq_factor;
    return rope;
  }
  rope["beta_fast"] = model.yarn_beta_fast;
  rope["beta_slow"] = model.yarn_beta_slow;
  rope["truncate"] = model.yarn_correction_range_round_to_int;
  if (model.yarn_mscale_all_dim != 0) {
    rope["mscale"] = model.yarn_mscale;
    rope["mscale_all_dim"] = model.yarn_mscale_all_dim;
  }
  if (model.yarn_attention_factor) rope["attention_factor"] = *model.yarn_attention_factor;
  return rope;
}

void write_rope(const TransformerConfig& model, Json& json) {
  json["rope_parameters"] = rope_parameters(model);
  json["rope_theta"] = model.rotary_base;
  json.erase("original_max_position_embeddings");
  json.erase("partial_rotary_factor");
  json["rope_scaling"] = nullptr;
  if (model.rope_scaling_type == RopeScaling::none) return;
  json["rope_scaling"] = json["rope_parameters"];
  json["rope_scaling"].erase("rope_theta");
}

/// How a family says which layers have a sliding window.
enum class Windows { none, every_layer, if_used, by_layer };

Windows windows_of(std::string_view model_type) {
  if (model_type == "llama" || model_type == "olmoe") return Windows::none;
  if (model_type == "mistral" || model_type == "mixtral") return Windows::every_layer;
  return model_type == "qwen3_moe" ? Windows::if_used : Windows::by_layer;
}

void write_window(const TransformerConfig& model, Windows kind, Json& json) {
  if (kind == Windows::none) return;
  const Json width = model.window_size ? Json((*model.window_size)[0] + 1) : Json(nullptr);
  json["sliding_window"] = width;
  if (kind == Windows::every_layer) return;
  json["use_sliding_window"] = model.window_size.has_value();
  if (kind == Windows::if_used) return;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    types.push_back(model.kind(layer).window ? "sliding_attention" : "full_attention");
  const auto first = std::find(types.begin(), types.end(), "sliding_attention");
  json["layer_types"] = types;
  json["max_window_layers"] = first - types.begin();
}

void write_llama(const TransformerConfig& model, const std::string& model_type, Json& json) {
  json["num_hidden_layers"] = model.num_layers;
  json["hidden_size"] = model.hidden_size;
  json["num_attention_heads"] = model.num_attention_heads;
  json["num_key_value_heads"] = model.num_query_groups;
  const bool writes_head_dim =
      model_type != "qwen2" && model_type != "qwen2_moe" && model_type != "olmoe";
  if (writes_head_dim || json.contains("head_dim") ||
      model.kv_channels * model.num_attention_heads != model.hidden_size) {
    json["head_dim"] = model.kv_channels;
  }
  json["intermediate_size"] = model.ffn_hidden_size;
  json["hidden_act"] = activation_name(model.activation);
  json["rms_norm_eps"] = model.norm_epsilon;
  json["attention_dropout"] = model.attention_dropout;
  if (model_type == "llama") json["attention_bias"] = json["mlp_bias"] = model.add_bias_linear;
  if (model_type == "qwen3" || model_type == "qwen3_moe" || model_type == "olmoe")
    json["attention_bias"] = false;
  if (model_type == "olmoe") json["clip_qkv"] = model.clip_qkv ? Json(*model.clip_qkv) : Json();
  if (model_type == "qwen2_moe") json["qkv_bias"] = model.add_qkv_bias;
  write_rope(model, json);
  write_window(model, windows_of(model_type), json);
  if (const MoeFamily* moe = find_moe_family(model_type)) write_moe(model, *moe, json);
}

void write_gpt2(const TransformerConfig& model, Json& json) {
  json["n_layer"] = model.num_layers;
  json["n_embd"] = model.hidden_size;
  json["n_head"] = model.num_attention_heads;
  json["n_positions"] = model.max_position_embeddings;
  if (json.contains("n_ctx")) json["n_ctx"] = model.max_position_embeddings;
  json["n_inner"] =
      model.ffn_hidden_size == 4 * model.hidden_size ? Json(nullptr) : Json(model.ffn_hidden_size);
  json["activation_function"] = model.activation == Activation::gelu_tanh
                                    ? "gelu_new"
                                    : std::string(activation_name(model.activation));
  json["layer_norm_epsilon"] = model.norm_epsilon;
  json["scale_attn_weights"] = !model.softmax_scale.has_value();
  json["resid_pdrop"] = json["embd_pdrop"] = model.hidden_dropout;
  json["attn_pdrop"] = model.attention_dropout;
}

constexpr std::array<std::pair<std::string_view, const char*>, kHfModelTypes.size()> kArchitectures{
    {{"gpt2", "GPT2LMHeadModel"},
     {"llama", "LlamaForCausalLM"},
     {"qwen2", "Qwen2ForCausalLM"},
     {"qwen3", "Qwen3ForCausalLM"},
     {"mistral", "MistralForCausalLM"},
     {"mixtral", "MixtralForCausalLM"},
     {"qwen2_moe", "Qwen2MoeForCausalLM"},
     {"qwen3_moe", "Qwen3MoeForCausalLM"},
     {"olmoe", "OlmoeForCausalLM"}}};

Json fresh_config(const std::string& model_type) {
  const std::string architecture =
      std::ranges::find(kArchitectures, model_type, [](const auto& row) {
        return row.first;
      })->second;
  return {{"architectures", {architecture}},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"use_cache", true}};
}

[[noreturn]] void cannot_express(const std::string& model_type,
                                 const std::vector<ArchitectureDifference>& differences) {
  std::string got;
  for (const auto& difference : differences) {
    got += (got.empty() ? "" : ", ") + difference.member + " = " + difference.left + " (" +
           model_type + ": " + difference.right + ")";
  }
  throw UserError(
      {"the model cannot be written as Hugging Face model_type '" + model_type + "'", got, ""});
}

/// Throws UserError unless the written config.json reads back as the same forward function.
void check_expressed(const TransformerConfig& model, const std::string& model_type,
                     const Json& json) {
  const auto differences =
      forward_differences(model, parse_hf_config(json, model_type + " config.json").model);
  if (!differences.empty()) cannot_express(model_type, differences);
  if (model_type == "llama" && model.hidden_size % model.num_attention_heads != 0) {
    throw UserError({"the model cannot be written as Hugging Face model_type 'llama'",
                     "hidden_size is not a multiple of num_attention_heads", ""});
  }
}

/// Returns whether the original config.json already describes the model, so that its spelling may
/// stay.
bool is_equivalent(const Json& original, const TransformerConfig& model) {
  const HfConfig there = parse_hf_config(original, "config.json");
  for (const auto& [name, origin] : there.given_training_fields) {
    const Field& field = *training_members().set().find_name(name);
    if (origin != kFamilyHasNone && field.get(&there.model) != field.get(&model)) return false;
  }
  return there.model.max_position_embeddings == model.max_position_embeddings &&
         forward_differences(there.model, model).empty();
}

void write_model(const TransformerConfig& model, const std::string& family, Json& json) {
  TransformerConfig full = canonical_architecture(model);
  full.max_position_embeddings = model.max_position_embeddings;
  json["model_type"] = family;
  json["vocab_size"] = full.vocab_size;
  json["initializer_range"] = full.init_method_std;
  json["tie_word_embeddings"] = !full.untie_embeddings_and_output_weights;
  if (family == "gpt2") {
    write_gpt2(full, json);
  } else {
    json["max_position_embeddings"] = full.max_position_embeddings;
    write_llama(full, family, json);
  }
}

/// Uses the spelling that the file has: "dtype" since transformers 4.56, "torch_dtype" before.
void write_dtype(std::string_view dtype, Json& json) {
  const bool old_only = json.contains("torch_dtype") && !json.contains("dtype");
  if (!old_only) json["dtype"] = std::string(dtype);
  if (json.contains("torch_dtype")) json["torch_dtype"] = std::string(dtype);
}

}  // namespace

Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original) {
  const std::string family(model_type);
  const bool same = original != nullptr && original->value("model_type", "") == family;
  Json json = same ? *original : fresh_config(family);
  if (!same || !is_equivalent(json, model)) write_model(model, family, json);
  write_dtype(dtype, json);
  check_expressed(model, family, json);
  return json;
}

}  // namespace megatron
