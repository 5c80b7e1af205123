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
  const std::string fc1 = "mlp.experts.linear_fc1.weight", fc2 = "mlp.experts.linear_fc2.weight",
                    moe = "block_sparse_moe.";
  family.add_layer_tensors({{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
                            {"mlp.router.weight", moe + "router.layer.weight"},
                            {fc1, moe + "input_linear.weight"},
                            {fc2, moe + "output_linear.weight"},
                            stacked("mlp.router.weight", moe + "router.weight"),
                            stacked(fc1, moe + "experts.gate_up_proj"),
                            stacked(fc2, moe + "experts.down_proj")});
  return family;
}

}  // namespace megatron::families
