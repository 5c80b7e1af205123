#include "megatron/models/hf/moe_family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

constexpr std::array kFamilies{
    MoeFamily{.model_type = "mixtral",
              .experts_key = "num_local_experts",
              .other_experts_key = "num_experts",
              .default_experts = 8,
              .default_topk = 2,
              .width_key = "intermediate_size",
              .always_normalizes = true,
              .reads_jitter = true},
    MoeFamily{.model_type = "qwen2_moe",
              .experts_key = "num_experts",
              .other_experts_key = "",
              .default_experts = 60,
              .default_topk = 4,
              .width_key = "moe_intermediate_size",
              .default_width = 1408,
              .default_shared_width = 5632,
              .chooses_layers = true},
    MoeFamily{.model_type = "qwen3_moe",
              .experts_key = "num_experts",
              .other_experts_key = "num_local_experts",
              .default_experts = 128,
              .default_topk = 8,
              .width_key = "moe_intermediate_size",
              .default_width = 768,
              .chooses_layers = true},
    MoeFamily{.model_type = "olmoe",
              .experts_key = "num_experts",
              .other_experts_key = "num_local_experts",
              .default_experts = 64,
              .default_topk = 8,
              .width_key = "intermediate_size",
              .default_aux_coefficient = 0.01},
};

std::int64_t read_num_experts(const ConfigReader& config, const MoeFamily& family) {
  const std::string own(family.experts_key), other(family.other_experts_key);
  const bool has_other = !other.empty() && config.has(other);
  const std::string& key = has_other && !config.has(own) ? other : own;
  const std::int64_t count = config.size(key, kMostExperts, family.default_experts);
  if (has_other && config.integer(other) != count)
    config.unsupported(other, own + " says " + std::to_string(count));
  return count;
}

/// Returns 1 for each layer with experts, else 0.
std::vector<std::int64_t> read_layers(const ConfigReader& config, std::int64_t num_layers) {
  const std::int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) config.unsupported("decoder_sparse_step", "it must be at least 1");
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    layers.push_back((layer + 1) % step == 0 ? 1 : 0);
  const Json* dense = config.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_array())
    config.unsupported("mlp_only_layers", "it must be a list of layers");
  for (const Json& layer : dense != nullptr ? *dense : Json::array()) {
    if (!layer.is_number_integer())
      config.unsupported("mlp_only_layers", "it must be a list of layers");
    // As in transformers, a number that is no layer has no effect.
    const auto index = layer.get<std::int64_t>();
    if (index >= 0 && index < num_layers) layers[static_cast<std::size_t>(index)] = 0;
  }
  if (!std::ranges::count(layers, 1)) {
    config.unsupported(config.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
                       "at least one layer must have experts");
  }
  return layers;
}

double at_least_zero(const ConfigReader& config, const std::string& key, double otherwise) {
  const double value = config.number(key, otherwise);
  if (!(value >= 0) || !std::isfinite(value)) config.unsupported(key, "it must be at least 0");
  return value;
}

void read_training(const ConfigReader& config, const MoeFamily& family, HfConfig& result) {
  MoeConfig& moe = result.model.moe;
  moe.router_load_balancing_type = {LoadBalancing::aux_loss};
  moe.aux_loss_coeff = {
      at_least_zero(config, "router_aux_loss_coef", family.default_aux_coefficient)};
  result.given_training_fields["moe_aux_loss_coeff"] = config.origin("router_aux_loss_coef");
  if (!family.reads_jitter) return;
  const double jitter = config.fraction("router_jitter_noise", 0);
  if (jitter > 0) moe.input_jitter_eps = jitter;
  result.given_training_fields["moe_input_jitter_eps"] = config.origin("router_jitter_noise");
}

}  // namespace

const MoeFamily* find_moe_family(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &MoeFamily::model_type);
  return found == kFamilies.end() ? nullptr : &*found;
}

void read_moe(const ConfigReader& config, const MoeFamily& family, HfConfig& result) {
  MoeConfig& moe = result.model.moe;
  moe.num_experts = read_num_experts(config, family);
  moe.router_topk = config.size("num_experts_per_tok", moe.num_experts, family.default_topk);
  moe.ffn_hidden_size =
      config.size(std::string(family.width_key), kWidest,
                  family.default_width > 0 ? std::optional(family.default_width) : std::nullopt);
  if (family.default_shared_width > 0) {
    moe.shared_expert_intermediate_size =
        config.size("shared_expert_intermediate_size", kWidest, family.default_shared_width);
    moe.shared_expert_gate = true;
  }
  if (family.chooses_layers) {
    const std::vector<std::int64_t> layers = read_layers(config, result.model.num_layers);
    set_experts(result.model,
                std::ranges::count(layers, 0) > 0 ? layers : std::vector<std::int64_t>());
  }
  moe.router_pre_softmax = !family.always_normalizes && !config.boolean("norm_topk_prob", false);
  read_training(config, family, result);
}

void write_moe(const TransformerConfig& model, const MoeFamily& family, Json& json) {
  const MoeConfig& moe = model.moe;
  json[std::string(family.experts_key)] = moe.num_experts;
  if (const std::string other(family.other_experts_key); json.contains(other))
    json[other] = moe.num_experts;
  json["num_experts_per_tok"] = moe.router_topk;
  json[std::string(family.width_key)] = moe.ffn_hidden_size;
  if (family.default_shared_width > 0)
    json["shared_expert_intermediate_size"] = moe.shared_expert_intermediate_size;
  if (family.chooses_layers) {
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = Json::array();
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
      if (!model.kind(layer).has_experts()) json["mlp_only_layers"].push_back(layer);
  }
  if (!family.always_normalizes) json["norm_topk_prob"] = !moe.router_pre_softmax;
  json["router_aux_loss_coef"] = moe.coefficient(LoadBalancing::aux_loss);
  if (!json.contains("output_router_logits")) json["output_router_logits"] = false;
  if (family.reads_jitter) json["router_jitter_noise"] = moe.input_jitter_eps.value_or(0);
}

}  // namespace megatron
