#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The class scales rotary positions even if config.json says nothing of them.
void read_default_scaling(const ConfigReader& config, HfConfig& result) {
  if (config.has("rope_scaling") || config.has("rope_parameters")) return;
  T& model = result.model;
  model.rope_scaling_type = RopeScaling::yarn;
  model.rope_scaling_factor = 32;
  model.rope_original_max_position_embeddings = 4096;
  model.yarn_correction_range_round_to_int = false;
}

}  // namespace

HfFamily gpt_oss() {
  HfFamily family = llama_like("gpt_oss", "GptOssForCausalLM", 8, {.has_head_dim = true});
  T& model = family.defaults;
  model.norm_epsilon = 1e-5;
  model.rotary_base = 150000;
  model.kv_channels = 64;
  model.softmax_type = SoftmaxType::learnable;
  model.add_bias_linear = true;
  model.activation = Activation::quick_gelu;
  model.activation_func_clamp_value = 7;
  model.glu_linear_offset = 1;
  // The class writes hidden_act and ignores it.
  std::erase_if(family.keys, [](const KeyRow& row) { return row.key == "hidden_act"; });
  family.keys.emplace_back(
      "hidden_act", [](const ConfigReader&, HfConfig&) {},
      [](const T&, Json& json) { json["hidden_act"] = "silu"; });
  family.add_keys({{"", read_default_scaling},
                   constant("attention_bias", true),
                   constant("swiglu_limit", 7.0),
                   sliding_window({.width = 128, .period = 2})});
  add_experts(family, "num_local_experts", "num_experts", "intermediate_size", 128, 4);
  const std::string fc1 = "mlp.experts.linear_fc1.", fc2 = "mlp.experts.linear_fc2.";
  family.add_layer_tensors(
      {{"self_attention.core_attention.softmax_offset", "self_attn.sinks"},
       {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
       {"mlp.router.{w}", "mlp.router.{w}"},
       {.ours = fc1 + "weight",
        .theirs = "mlp.experts.gate_up_proj",
        .blocks = kGateUp,
        .is_transposed = true,
        .is_interleaved = true},
       {.ours = fc1 + "bias",
        .theirs = "mlp.experts.gate_up_proj_bias",
        .blocks = kGateUp,
        .is_interleaved = true},
       {.ours = fc2 + "weight", .theirs = "mlp.experts.down_proj", .is_transposed = true},
       {fc2 + "bias", "mlp.experts.down_proj_bias"}});
  return family;
}

}  // namespace megatron::families
