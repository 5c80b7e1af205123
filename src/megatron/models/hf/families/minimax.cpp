#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The number of rotated channels, which published folders give in place of the factor.
void read_rotary_dim(const ConfigReader& config, HfConfig& result) {
  if (!config.has("rotary_dim")) return;
  T& model = result.model;
  const std::int64_t channels = config.size("rotary_dim", model.kv_channels);
  const auto has_factor = [](const ConfigReader& reader) {
    return reader.has("partial_rotary_factor");
  };
  if (!has_factor(config) && !has_factor(config.section("rope_parameters")) &&
      !has_factor(config.section("rope_scaling")))
    model.rotary_percent = static_cast<double>(channels) / static_cast<double>(model.kv_channels);
  else if (model.rotated_channels() != channels)
    config.unsupported("rotary_dim",
                       "partial_rotary_factor says " + std::to_string(model.rotated_channels()));
}

void write_rotary_dim(const T& model, Json& json) { json["rotary_dim"] = model.rotated_channels(); }

}  // namespace

HfFamily minimax_m2() {
  HfFamily family = llama_like("minimax_m2", "MiniMaxM2ForCausalLM", 8,
                               {.has_head_dim = true, .partial_rotary = "partial_rotary_factor"});
  family.defaults.kv_channels = 128;
  family.defaults.rotary_base = 5e6;
  family.keys.emplace_back("rotary_dim", read_rotary_dim, write_rotary_dim);
  add_query_key_norms(family, QkNormScope::all_heads);
  add_experts(family, "num_local_experts", "num_experts", "intermediate_size", 256, 8);
  add_sigmoid_router(family);
  family.add_keys(
      {{"router_jitter_noise", &M::input_jitter_eps, {.range = kFraction, .zero_is_none = true}}});
  const std::string moe = "block_sparse_moe.", expert = moe + "experts.{e}.",
                    bias = "e_score_correction_bias";
  family.add_layer_tensors(expert_tensors(expert + "w1.weight", expert + "w3.weight",
                                          expert + "w2.weight", moe + "gate.weight"));
  family.add_layer_tensors({stacked("mlp.router.weight", "mlp.gate.weight"),
                            {"mlp.router.expert_bias", moe + bias},
                            stacked("mlp.router.expert_bias", "mlp." + bias)});
  return family;
}

}  // namespace megatron::families
