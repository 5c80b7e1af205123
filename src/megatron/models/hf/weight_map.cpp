#include "megatron/models/hf/weight_map.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"

namespace megatron {
namespace {

using T = WeightTransform;

/// {i} stands for the layer index.
struct WeightRule {
  std::string_view ours;
  std::array<std::string_view, 3> theirs;
  WeightTransform transform = T::copy;
};

struct WeightFamily {
  std::string_view model_type, prefix;
  std::span<const WeightRule> rules;
  bool query_key_norm = false;
};

constexpr std::array kGpt2Rules{
    WeightRule{"embedding.word_embeddings.weight", {"transformer.wte.weight"}},
    WeightRule{"embedding.position_embeddings.weight", {"transformer.wpe.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.layer_norm_weight",
               {"transformer.h.{i}.ln_1.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.layer_norm_bias",
               {"transformer.h.{i}.ln_1.bias"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.weight",
               {"transformer.h.{i}.attn.c_attn.weight"},
               T::gpt2_qkv},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.bias",
               {"transformer.h.{i}.attn.c_attn.bias"},
               T::gpt2_qkv},
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.weight",
               {"transformer.h.{i}.attn.c_proj.weight"},
               T::transpose},
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.bias",
               {"transformer.h.{i}.attn.c_proj.bias"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.layer_norm_weight",
               {"transformer.h.{i}.ln_2.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.layer_norm_bias",
               {"transformer.h.{i}.ln_2.bias"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.weight",
               {"transformer.h.{i}.mlp.c_fc.weight"},
               T::transpose},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.bias", {"transformer.h.{i}.mlp.c_fc.bias"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc2.weight",
               {"transformer.h.{i}.mlp.c_proj.weight"},
               T::transpose},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc2.bias", {"transformer.h.{i}.mlp.c_proj.bias"}},
    WeightRule{"decoder.final_layernorm.weight", {"transformer.ln_f.weight"}},
    WeightRule{"decoder.final_layernorm.bias", {"transformer.ln_f.bias"}},
    WeightRule{"output_layer.weight", {kHfOutputLayer}},
};

constexpr std::array kLlamaRules{
    WeightRule{"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.layer_norm_weight",
               {"model.layers.{i}.input_layernorm.weight"}},
    WeightRule{
        "decoder.layers.{i}.self_attention.linear_qkv.weight",
        {"model.layers.{i}.self_attn.q_proj.weight", "model.layers.{i}.self_attn.k_proj.weight",
         "model.layers.{i}.self_attn.v_proj.weight"},
        T::query_groups},
    WeightRule{"decoder.layers.{i}.self_attention.linear_qkv.bias",
               {"model.layers.{i}.self_attn.q_proj.bias", "model.layers.{i}.self_attn.k_proj.bias",
                "model.layers.{i}.self_attn.v_proj.bias"},
               T::query_groups},
    WeightRule{"decoder.layers.{i}.self_attention.q_layernorm.weight",
               {"model.layers.{i}.self_attn.q_norm.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.k_layernorm.weight",
               {"model.layers.{i}.self_attn.k_norm.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.weight",
               {"model.layers.{i}.self_attn.o_proj.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.bias",
               {"model.layers.{i}.self_attn.o_proj.bias"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.layer_norm_weight",
               {"model.layers.{i}.post_attention_layernorm.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.weight",
               {"model.layers.{i}.mlp.gate_proj.weight", "model.layers.{i}.mlp.up_proj.weight"},
               T::gate_up},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc1.bias",
               {"model.layers.{i}.mlp.gate_proj.bias", "model.layers.{i}.mlp.up_proj.bias"},
               T::gate_up},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc2.weight",
               {"model.layers.{i}.mlp.down_proj.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.linear_fc2.bias", {"model.layers.{i}.mlp.down_proj.bias"}},
    WeightRule{"decoder.final_layernorm.weight", {"model.norm.weight"}},
    WeightRule{"output_layer.weight", {kHfOutputLayer}},
};

constexpr std::array kFamilies{
    WeightFamily{"gpt2", "transformer.", kGpt2Rules},
    WeightFamily{"llama", "model.", kLlamaRules},
    WeightFamily{"qwen2", "model.", kLlamaRules},
    WeightFamily{"qwen3", "model.", kLlamaRules, true},
    WeightFamily{"mistral", "model.", kLlamaRules},
};

const WeightFamily& family_of(std::string_view model_type) {
  const auto found =
      std::find_if(kFamilies.begin(), kFamilies.end(),
                   [&](const WeightFamily& family) { return family.model_type == model_type; });
  MEGATRON_CHECK(found != kFamilies.end(), "no weight map for model_type ", model_type);
  return *found;
}

struct LayerName {
  std::string pattern, layer;
};

/// Splits a name by its layer: "decoder.layers.12.mlp" → {"decoder.layers.{i}.mlp", "12"}.
LayerName split_layer(const std::string& name) {
  constexpr std::string_view kLayers = "decoder.layers.";
  if (!name.starts_with(kLayers)) return {name, ""};
  std::size_t end = kLayers.size();
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
  return {std::string(kLayers).append("{i}").append(name, end),
          name.substr(kLayers.size(), end - kLayers.size())};
}

std::string in_layer(std::string_view pattern, const std::string& layer) {
  std::string name(pattern);
  const auto place = name.find("{i}");
  return place == std::string::npos ? name : name.replace(place, 3, layer);
}

const WeightRule* find_rule(const WeightFamily& family, const std::string& pattern) {
  if (!family.query_key_norm &&
      (pattern.ends_with("q_layernorm.weight") || pattern.ends_with("k_layernorm.weight")))
    return nullptr;
  const auto found = std::find_if(family.rules.begin(), family.rules.end(),
                                  [&](const WeightRule& rule) { return rule.ours == pattern; });
  return found == family.rules.end() ? nullptr : &*found;
}

}  // namespace

std::vector<WeightMapping> map_weights(std::string_view model_type,
                                       std::span<const std::string> our_names) {
  const WeightFamily& family = family_of(model_type);
  std::vector<WeightMapping> links;
  std::vector<std::string> homeless;
  for (const std::string& name : our_names) {
    const LayerName split = split_layer(name);
    const WeightRule* rule = find_rule(family, split.pattern);
    if (rule == nullptr) {
      homeless.push_back(name);
      continue;
    }
    WeightMapping link{.ours = name, .theirs = {}, .transform = rule->transform};
    for (const std::string_view theirs : rule->theirs) {
      if (!theirs.empty()) link.theirs.push_back(in_layer(theirs, split.layer));
    }
    links.push_back(std::move(link));
  }
  require_no_names("Hugging Face model_type '" + std::string(model_type) +
                       "' has no tensors for parameters of the model",
                   homeless,
                   "choose another --hf-model-type, or keep the model in --format megatron");
  return links;
}

std::string full_hf_name(std::string_view model_type, const std::string& name) {
  const WeightFamily& family = family_of(model_type);
  if (name.starts_with(family.prefix) || name.starts_with("lm_head.")) return name;
  return std::string(family.prefix) + name;
}

bool is_hf_buffer(std::string_view model_type, std::string_view full_name) {
  if (full_name.ends_with("rotary_emb.inv_freq")) return true;
  return model_type == "gpt2" &&
         (full_name.ends_with(".attn.bias") || full_name.ends_with(".attn.masked_bias"));
}

std::string hf_embedding_name(std::string_view model_type) {
  return std::string(
      find_rule(family_of(model_type), "embedding.word_embeddings.weight")->theirs[0]);
}

}  // namespace megatron
