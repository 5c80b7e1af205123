#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Reads the rotary parameters with the row `otherwise`, unless they have the type dynamic and an
/// alpha, which multiplies the base by alpha^(d / (d - 2)) for heads of size d. Up to
/// max_position_embeddings that is all that the type does.
void read_rope(const ConfigReader& config, HfConfig& result, const KeyRow& otherwise) {
  const ConfigReader rope =
      config.section(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::string type = rope.text(rope.has("rope_type") ? "rope_type" : "type", "");
  const double alpha = rope.number("alpha", 0);
  if (type != "dynamic" || alpha == 0) return otherwise.read(config, result);
  T& model = result.model;
  const auto size = static_cast<double>(model.kv_channels);
  read_keys({{"rope_theta", &T::rotary_base, kPositive}}, rope.with("rope_theta"), result);
  model.rotary_base *= std::pow(alpha, size / (size - 2));
  if (!kAboveZero.contains(model.rotary_base)) rope.unsupported("alpha", kAboveZero.words);
}

}  // namespace

HfFamily hunyuan_v1_dense() {
  HfFamily family =
      llama_like("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", 0, {.has_head_dim = true});
  family.defaults.norm_epsilon = 1e-5;
  const auto rope = std::ranges::find(family.keys, "rope_parameters", &KeyRow::key);
  rope->read = [otherwise = *rope](const ConfigReader& config, HfConfig& result) {
    read_rope(config, result, otherwise);
  };
  add_query_key_norms(family, QkNormScope::head, "query_layernorm", "key_layernorm");
  family.defaults.qk_layernorm_placement = QkNormPlacement::after_rotary;
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace megatron::families
