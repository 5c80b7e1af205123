#include "megatron/models/hf/weight_map.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"

namespace megatron {
namespace {

using T = WeightTransform;

/// {i} stands for the layer index, {j} for each expert.
struct WeightRule {
  std::string_view ours;
  std::array<std::string_view, 3> theirs;
  WeightTransform transform = T::copy;
  std::string_view stacked = {};  ///< WeightMapping::stacked
};

struct WeightFamily {
  std::string_view model_type, prefix;
  std::array<std::span<const WeightRule>, 4> rules;
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
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.weight",
               {"model.layers.{i}.self_attn.o_proj.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.linear_proj.bias",
               {"model.layers.{i}.self_attn.o_proj.bias"}},
    WeightRule{"decoder.final_layernorm.weight", {"model.norm.weight"}},
    WeightRule{"output_layer.weight", {kHfOutputLayer}},
};

constexpr std::array kQueryKeyNormRules{
    WeightRule{"decoder.layers.{i}.self_attention.q_layernorm.weight",
               {"model.layers.{i}.self_attn.q_norm.weight"}},
    WeightRule{"decoder.layers.{i}.self_attention.k_layernorm.weight",
               {"model.layers.{i}.self_attn.k_norm.weight"}},
};

constexpr std::array kDenseRules{
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
};

/// The experts of the families whose layers may also have a dense MLP.
constexpr std::array kQwenMoeRules{
    WeightRule{"decoder.layers.{i}.pre_mlp_layernorm.weight",
               {"model.layers.{i}.post_attention_layernorm.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.router.weight", {"model.layers.{i}.mlp.gate.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.experts.linear_fc1.weight",
               {"model.layers.{i}.mlp.experts.{j}.gate_proj.weight",
                "model.layers.{i}.mlp.experts.{j}.up_proj.weight"},
               T::experts_gate_up,
               "model.layers.{i}.mlp.experts.gate_up_proj"},
    WeightRule{"decoder.layers.{i}.mlp.experts.linear_fc2.weight",
               {"model.layers.{i}.mlp.experts.{j}.down_proj.weight"},
               T::experts,
               "model.layers.{i}.mlp.experts.down_proj"},
};

constexpr std::array kSharedExpertRules{
    WeightRule{"decoder.layers.{i}.mlp.shared_experts.linear_fc1.weight",
               {"model.layers.{i}.mlp.shared_expert.gate_proj.weight",
                "model.layers.{i}.mlp.shared_expert.up_proj.weight"},
               T::gate_up},
    WeightRule{"decoder.layers.{i}.mlp.shared_experts.linear_fc2.weight",
               {"model.layers.{i}.mlp.shared_expert.down_proj.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.shared_experts.gate_weight",
               {"model.layers.{i}.mlp.shared_expert_gate.weight"}},
};

constexpr std::array kMixtralRules{
    WeightRule{"decoder.layers.{i}.pre_mlp_layernorm.weight",
               {"model.layers.{i}.post_attention_layernorm.weight"}},
    WeightRule{"decoder.layers.{i}.mlp.router.weight",
               {"model.layers.{i}.block_sparse_moe.gate.weight"},
               T::copy,
               "model.layers.{i}.mlp.gate.weight"},
    WeightRule{"decoder.layers.{i}.mlp.experts.linear_fc1.weight",
               {"model.layers.{i}.block_sparse_moe.experts.{j}.w1.weight",
                "model.layers.{i}.block_sparse_moe.experts.{j}.w3.weight"},
               T::experts_gate_up,
               "model.layers.{i}.mlp.experts.gate_up_proj"},
    WeightRule{"decoder.layers.{i}.mlp.experts.linear_fc2.weight",
               {"model.layers.{i}.block_sparse_moe.experts.{j}.w2.weight"},
               T::experts,
               "model.layers.{i}.mlp.experts.down_proj"},
};

constexpr std::array kFamilies{
    WeightFamily{"gpt2", "transformer.", {kGpt2Rules}},
    WeightFamily{"llama", "model.", {kLlamaRules, kDenseRules}},
    WeightFamily{"qwen2", "model.", {kLlamaRules, kDenseRules}},
    WeightFamily{"qwen3", "model.", {kLlamaRules, kQueryKeyNormRules, kDenseRules}},
    WeightFamily{"mistral", "model.", {kLlamaRules, kDenseRules}},
    WeightFamily{"mixtral", "model.", {kLlamaRules, kMixtralRules}},
    WeightFamily{
        "qwen2_moe", "model.", {kLlamaRules, kDenseRules, kQwenMoeRules, kSharedExpertRules}},
    WeightFamily{
        "qwen3_moe", "model.", {kLlamaRules, kQueryKeyNormRules, kDenseRules, kQwenMoeRules}},
    WeightFamily{"olmoe", "model.", {kLlamaRules, kQueryKeyNormRules, kQwenMoeRules}},
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

/// Returns `pattern` with the number in the place of `mark`, if it has one.
std::string with_number(std::string_view pattern, std::string_view mark,
                        const std::string& number) {
  std::string name(pattern);
  const auto place = name.find(mark);
  return place == std::string::npos ? name : name.replace(place, mark.size(), number);
}

const WeightRule* find_rule(const WeightFamily& family, const std::string& pattern) {
  for (const std::span<const WeightRule> rules : family.rules) {
    const auto found = std::ranges::find(rules, pattern, &WeightRule::ours);
    if (found != rules.end()) return &*found;
  }
  return nullptr;
}

std::vector<std::string> their_names(const WeightRule& rule, const std::string& layer,
                                     std::int64_t num_experts) {
  const bool by_expert = rule.transform == T::experts || rule.transform == T::experts_gate_up;
  std::vector<std::string> names;
  for (std::int64_t expert = 0; expert < (by_expert ? num_experts : 1); ++expert) {
    for (const std::string_view theirs : rule.theirs) {
      if (theirs.empty()) continue;
      names.push_back(
          with_number(with_number(theirs, "{i}", layer), "{j}", std::to_string(expert)));
    }
  }
  return names;
}

/// Throws UserError naming the parameters that would be written to one and the same tensor, as the
/// norms of a dense and of a mixture-of-experts layer.
void require_distinct_tensors(const std::string& model_type,
                              const std::vector<WeightMapping>& links) {
  std::map<std::string_view, std::string_view> owners;
  std::vector<std::string> doubled;
  for (const WeightMapping& link : links) {
    for (const std::string& theirs : link.theirs) {
      const auto [owner, is_new] = owners.emplace(theirs, link.ours);
      if (!is_new) doubled.push_back(std::string(owner->second) + " and " + link.ours);
    }
  }
  require_no_names("Hugging Face model_type '" + model_type +
                       "' has one tensor for several parameters of the model",
                   doubled, "a layer has either experts or a dense MLP");
}

}  // namespace

std::vector<WeightMapping> map_weights(std::string_view model_type,
                                       std::span<const std::string> our_names,
                                       std::int64_t num_experts) {
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
    links.push_back({.ours = name,
                     .theirs = their_names(*rule, split.layer, num_experts),
                     .transform = rule->transform,
                     .stacked = with_number(rule->stacked, "{i}", split.layer)});
  }
  require_no_names("Hugging Face model_type '" + std::string(model_type) +
                       "' has no tensors for parameters of the model",
                   homeless,
                   "choose another --hf-model-type, or keep the model in --format megatron");
  require_distinct_tensors(std::string(model_type), links);
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
