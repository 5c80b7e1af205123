#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// What all share: norms with weights around zero, embeddings times the root of the hidden size,
/// GEGLU, and the embedding as output layer.
HfFamily gemma_like(const std::string& model_type, const std::string& architecture,
                    std::int64_t groups, const AttentionKeys& keys) {
  HfFamily family = llama_like(model_type, architecture, groups, keys);
  T& model = family.defaults;
  model.apply_layernorm_1p = true;
  model.activation = Activation::gelu_tanh;
  model.untie_embeddings_and_output_weights = false;
  model.kv_channels = 256;
  family.keys.emplace_back("", [](const ConfigReader&, HfConfig& result) {
    result.model.embedding_multiplier = std::sqrt(static_cast<double>(result.model.hidden_size));
  });
  family.keys.push_back(constant("attention_bias", false));
  return family;
}

/// The activation in the files of transformers 4.39 to 4.47, whose class took null for the tanh
/// form, whatever hidden_act says.
KeyRow hidden_activation() {
  const auto read = [](const ConfigReader& config, HfConfig& result) {
    const Activation otherwise = result.model.activation;  // hidden_act
    if (config.is_null("hidden_activation")) result.model.activation = Activation::gelu_tanh;
    read_keys({{"hidden_activation", &T::activation}}, config, result);
    if (result.model.activation != otherwise)
      result.notes.push_back(config.source() +
                             ": hidden_activation (null: gelu_pytorch_tanh) is used instead of "
                             "hidden_act");
  };
  return {"hidden_activation", read, [](const T&, Json& json) {
            if (json.contains("hidden_activation")) json["hidden_activation"] = json["hidden_act"];
          }};
}

/// The cap of scores or logits; null: none.
KeyRow softcap(const std::string& key, double T::*cap) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    if (config.is_null(key)) result.model.*cap = 0;
    if (config.has(key)) read_keys({{key, cap, kPositive}}, config, result);
  };
  return {key, read, [=](const T& model, Json& json) {
            json[key] = model.*cap > 0 ? Json(model.*cap) : Json();
          }};
}

/// query_pre_attn_scalar, an integer. Scores are divided by its root.
KeyRow query_scalar() {
  const char* key = "query_pre_attn_scalar";
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    const double scalar = config.number(key, 256);
    if (!kAboveZero.contains(scalar)) config.unsupported(key, kAboveZero.words);
    result.model.softmax_scale = 1 / std::sqrt(scalar);
  };
  return {key, read, [=](const T& model, Json& json) {
            const double scale = model.softmax_scale.value_or(0);
            json[key] = scale > 0 ? std::llround(1 / (scale * scale)) : model.kv_channels;
          }};
}

/// What Gemma 2 and later models share: windows, a scale of the scores, and a norm of another name.
HfFamily gemma2_like(const std::string& model_type, const std::string& architecture,
                     const AttentionKeys& keys, const Windows& windows) {
  HfFamily family = gemma_like(model_type, architecture, 4, keys);
  family.needs_even_heads = true;
  std::ranges::find(family.keys, "hidden_act", &KeyRow::key)->key = "hidden_activation";
  family.add_keys({query_scalar(), softcap("final_logit_softcapping", &T::final_logit_softcapping),
                   sliding_window(windows)});
  TensorRows mlp = mlp_tensors();
  mlp.front().theirs = "pre_feedforward_layernorm.weight";
  family.add_layer_tensors(mlp);
  return family;
}

/// Sets the caps that Gemma 2 has by default.
void add_softcaps(HfFamily& family) {
  family.defaults.final_logit_softcapping = 30;
  family.defaults.attn_logit_softcapping = 50;
  family.keys.push_back(softcap("attn_logit_softcapping", &T::attn_logit_softcapping));
}

/// Adds norms of the outputs of both blocks.
void add_output_norms(HfFamily& family) {
  family.defaults.norm_placement = NormPlacement::sandwich;
  family.add_layer_tensors({{"post_self_attn_layernorm.weight", "post_attention_layernorm.weight"},
                            {"post_mlp_layernorm.weight", "post_feedforward_layernorm.weight"}});
}

}  // namespace

HfFamily gemma() {
  HfFamily family = gemma_like("gemma", "GemmaForCausalLM", 16, {.has_head_dim = true});
  family.add_keys({hidden_activation(), constant("use_bidirectional_attention", false)});
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily gemma2() {
  HfFamily family =
      gemma2_like("gemma2", "Gemma2ForCausalLM", {.has_head_dim = true}, {.period = 2});
  add_softcaps(family);
  add_output_norms(family);
  family.keys.push_back(constant("use_bidirectional_attention", false));
  return family;
}

HfFamily gemma3_text() {
  HfFamily family = gemma2_like("gemma3_text", "Gemma3ForCausalLM",
                                {.has_head_dim = true, .local_base = "rope_local_base_freq"},
                                {.period = 6, .period_key = "sliding_window_pattern"});
  family.defaults.rotary_base = 1e6;
  family.defaults.rotary_base_local = 1e4;
  add_query_key_norms(family, QkNormScope::head);
  add_output_norms(family);
  // The class has the key and ignores it.
  family.add_keys({constant("attn_logit_softcapping", nullptr),
                   constant("use_bidirectional_attention", false)});
  return family;
}

/// Gemma 2 without norms of outputs.
HfFamily vaultgemma() {
  HfFamily family =
      gemma2_like("vaultgemma", "VaultGemmaForCausalLM", {.has_head_dim = true}, {.period = 2});
  add_softcaps(family);
  return family;
}

}  // namespace megatron::families
