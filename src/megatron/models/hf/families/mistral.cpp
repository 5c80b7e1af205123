#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The temperature of attention, which steps at multiples of the length that the rotary parameters
/// name.
KeyRows temperature_keys() {
  const char* length = "original_max_position_embeddings";
  const auto read_floor = [=](const ConfigReader& rope, HfConfig& result) {
    T& model = result.model;
    const bool is_extended = model.rope_scaling_type == RopeScaling::yarn ||
                             model.rope_scaling_type == RopeScaling::llama3;
    model.attn_temperature_floor =
        is_extended ? model.rope_original_max_position_embeddings : rope.size(length, kMaxSize);
  };
  const auto write_floor = [=](const T& model, Json& rope) {
    if (model.attn_temperature_scale != 0) rope[length] = model.attn_temperature_floor;
  };
  return {{"llama_4_scaling_beta",
           &T::attn_temperature_scale,
           {.range = kAtLeastZero, .is_required = true}},
          {length, read_floor, write_floor}};
}

}  // namespace

HfFamily mistral() {
  HfFamily family = llama_like("mistral", "MistralForCausalLM", 8, {.has_head_dim = true});
  family.keys.push_back(sliding_window({}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily ministral() {
  HfFamily family = llama_like("ministral", "MinistralForCausalLM", 8, {.has_head_dim = true});
  family.keys.push_back(
      sliding_window({.includes = [](std::int64_t, std::int64_t) { return true; }}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily ministral3() {
  HfFamily family = llama_like("ministral3", "Ministral3ForCausalLM", 8,
                               {.has_head_dim = true, .rotary = temperature_keys});
  family.defaults.attn_temperature_all_layers = true;
  family.defaults.kv_channels = 128;
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.rotary_base = 1e6;
  family.keys.push_back(sliding_window({.width = 0}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily mixtral() {
  HfFamily family = llama_like("mixtral", "MixtralForCausalLM", 8, {.has_head_dim = true});
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.rotary_base = 1e6;
  family.keys.push_back(sliding_window({.width = 0}));
  add_experts(family, "num_local_experts", "num_experts", "intermediate_size", 8, 2);
  family.add_keys(
      {{"router_jitter_noise", &M::input_jitter_eps, {.range = kFraction, .zero_is_none = true}}});
  const std::string moe = "block_sparse_moe.", expert = moe + "experts.{e}.";
  family.add_layer_tensors(expert_tensors(expert + "w1.weight", expert + "w3.weight",
                                          expert + "w2.weight", moe + "gate.weight"));
  family.add_layer_tensors({stacked("mlp.router.weight", "mlp.gate.weight")});
  return family;
}

}  // namespace megatron::families
