#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Parallel blocks that read one norm, which has no bias.
HfFamily parallel_blocks(const std::string& model_type, const std::string& architecture) {
  HfFamily family = decoder(model_type, architecture, 0, {});
  T& model = family.defaults;
  model.parallel_residual = model.share_block_norm = true;
  model.add_norm_bias = model.add_bias_linear = false;
  model.activation = Activation::silu;
  model.gated_linear_unit = model.rotary_interleaved = true;
  model.logit_scale = 0.0625;
  family.add_keys({{"layer_norm_eps", &T::norm_epsilon, kPositive},
                   {"logit_scale", &T::logit_scale, kPositive},
                   {"attention_dropout", &T::attention_dropout, {.range = kFraction}},
                   constant("attention_bias", false)});
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace

HfFamily cohere() {
  HfFamily family = parallel_blocks("cohere", "CohereForCausalLM");
  family.defaults.rotary_base = 500000;
  const auto read_norms = [](const ConfigReader& config, HfConfig& result) {
    T& model = result.model;
    model.qk_layernorm = config.boolean("use_qk_norm", false);
    if (model.qk_layernorm) model.qk_layernorm_scope = QkNormScope::each_head;
  };
  family.keys.emplace_back("use_qk_norm", &T::qk_layernorm, read_norms);
  family.add_layer_tensors(query_key_norm_tensors());
  return family;
}

HfFamily cohere2() {
  HfFamily family = parallel_blocks("cohere2", "Cohere2ForCausalLM");
  family.add_keys({sliding_window({.period = 4, .period_key = "sliding_window_pattern"}),
                   {"layer_types", [](const ConfigReader&, HfConfig& result) {
                      rotate_in_windows_alone(result.model);
                    }}});
  return family;
}

}  // namespace megatron::families
