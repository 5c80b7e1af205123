#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/format.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Returns the divisor of the fewest digits whose reciprocal is `scale`.
double divisor_of(double scale) {
  const double divisor = 1 / scale, rounded = std::stod(format("%.15g", divisor));
  return 1 / rounded == scale ? rounded : divisor;
}

/// What both families share: factors of embeddings, scores, block outputs and logits.
HfFamily with_multipliers(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 0, {});
  family.defaults.softmax_scale = 1;
  const auto write_scale = [](const T& model, Json& json) {
    json["attention_multiplier"] =
        model.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(model.kv_channels)));
  };
  const auto read_logits = [](const ConfigReader& config, HfConfig& result) {
    const double divisor = config.number("logits_scaling", 1);
    if (!kAboveZero.contains(divisor)) config.unsupported("logits_scaling", kAboveZero.words);
    result.model.logit_scale = 1 / divisor;
  };
  const auto write_logits = [](const T& model, Json& json) {
    json["logits_scaling"] = divisor_of(model.logit_scale);
  };
  family.add_keys({{"attention_multiplier", &T::softmax_scale, kPositive, write_scale},
                   {"embedding_multiplier", &T::embedding_multiplier},
                   {"residual_multiplier", &T::residual_multiplier},
                   {"logits_scaling", read_logits, write_logits}});
  return family;
}

constexpr const char* kExperts = "num_local_experts";

/// The experts of a hybrid model, all or none of whose layers have them. What follows a mixer also
/// has an MLP, which is the shared expert, or all there is.
void read_hybrid_layers(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const std::int64_t width = config.size("shared_intermediate_size", kWidest, 1024);
  const bool has_experts = !config.has(kExperts) || config.integer(kExperts, 0) != 0;
  std::string mixers(static_cast<std::size_t>(model.num_layers), 'M');
  if (config.has("layer_types"))
    mixers = read_layer_types(config, "layer_types", "M*", model.num_layers);
  if (has_experts) {
    M& moe = model.moe;
    moe.num_experts = config.size(kExperts, kMostExperts, 8);
    moe.router_topk = config.size("num_experts_per_tok", moe.num_experts, 2);
    moe.ffn_hidden_size = model.ffn_hidden_size;
    moe.shared_expert_intermediate_size = width;
    moe.aux_loss_coeff = {config.number("router_aux_loss_coef", 0.001)};
  }
  model.ffn_hidden_size = width;
  set_mixers(model, mixers, has_experts ? 'E' : '-');
}

void write_hybrid_layers(const T& model, Json& json) {
  const M& moe = model.moe;
  const std::string mixers = mixers_of(model);
  const bool has_experts = moe.num_experts > 0;
  json["num_hidden_layers"] = mixers.size();
  json["layer_types"] = layer_types_of(mixers);
  json[kExperts] = moe.num_experts;
  if (has_experts) json["num_experts_per_tok"] = moe.router_topk;
  json["intermediate_size"] = has_experts ? moe.ffn_hidden_size : model.ffn_hidden_size;
  json["shared_intermediate_size"] =
      has_experts ? moe.shared_expert_intermediate_size : model.ffn_hidden_size;
  if (has_experts) write_keys({aux_loss()}, model, json);
}

void read_positions(const ConfigReader& config, HfConfig& result) {
  const bool rotates = config.text("position_embedding_type", "") == "rope";
  if (!rotates) result.model.position_embedding_type = PositionEmbedding::none;
}

void write_positions(const T& model, Json& json) {
  json["position_embedding_type"] = model.has_rotary() ? Json("rope") : Json();
}

/// The tensors of experts of all kinds of Granite.
TensorRows granite_expert_tensors() {
  const std::string fc1 = "mlp.experts.linear_fc1.weight", fc2 = "mlp.experts.linear_fc2.weight",
                    moe = "block_sparse_moe.";
  return {{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
          {"mlp.router.weight", moe + "router.layer.weight"},
          {fc1, moe + "input_linear.weight"},
          {fc2, moe + "output_linear.weight"},
          stacked("mlp.router.weight", moe + "router.weight"),
          stacked(fc1, moe + "experts.gate_up_proj"),
          stacked(fc2, moe + "experts.down_proj")};
}

}  // namespace

HfFamily granite() {
  HfFamily family = with_multipliers("granite", "GraniteForCausalLM");
  family.keys.push_back(biases());
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily granitemoe() {
  HfFamily family = with_multipliers("granitemoe", "GraniteMoeForCausalLM");
  family.keys.push_back(constant("attention_bias", false));
  add_experts(family, "num_local_experts", "", "intermediate_size", 8, 2);
  family.add_layer_tensors(granite_expert_tensors());
  return family;
}

HfFamily granitemoehybrid() {
  HfFamily family = with_multipliers("granitemoehybrid", "GraniteMoeHybridForCausalLM");
  add_mamba_mixers(family);
  family.add_keys({{"layer_types", read_hybrid_layers, write_hybrid_layers},
                   {"position_embedding_type", read_positions, write_positions}});
  TensorRows rows = granite_expert_tensors();
  for (const std::string mlp : {"mlp.", "mlp.shared_experts."}) {
    rows.push_back({mlp + "linear_fc1.weight", "shared_mlp.input_linear.weight"});
    rows.push_back({mlp + "linear_fc2.weight", "shared_mlp.output_linear.weight"});
  }
  rows.push_back({"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"});
  family.add_tensors({{"decoder.final_norm.weight", "model.norm.weight"}});
  family.add_layer_tensors(rows, "model.layers.{i/2}.", "decoder.layers.{2i+1}.");
  return family;
}

}  // namespace megatron::families
