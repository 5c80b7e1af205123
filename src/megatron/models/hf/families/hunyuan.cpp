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

/// The number of experts of a token, which may be a list with equal numbers for all layers.
void read_topk(const ConfigReader& config, HfConfig& result) {
  const char* key = "moe_topk";
  const Json* list = config.find(key);
  if (list == nullptr || !list->is_array()) {
    return read_keys(
        {{key, &M::router_topk, {.most_in = &M::num_experts, .alias = "num_experts_per_tok"}}},
        config, result);
  }
  const bool is_for_all = !list->empty() && std::ssize(*list) >= result.model.num_layers;
  const Json first = is_for_all ? list->front() : Json();
  const bool is_equal =
      first.is_number_integer() && std::ranges::all_of(*list, [&](const Json& number) {
        return number.is_number_integer() && number == first;
      });
  if (!is_equal || first < 1 || first > result.model.moe.num_experts)
    config.unsupported(key, "use one number, from 1 to num_experts, for all layers");
  result.model.moe.router_topk = first.get<std::int64_t>();
}

void write_topk(const T& model, Json& json) { json["moe_topk"] = model.moe.router_topk; }

/// The shared expert is as wide as the others.
void read_shared_width(const ConfigReader& /*config*/, HfConfig& result) {
  result.model.moe.shared_expert_intermediate_size = result.model.moe.ffn_hidden_size;
}

HfFamily hunyuan_like(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 0, {.has_head_dim = true});
  family.defaults.norm_epsilon = 1e-5;
  const auto rope = std::ranges::find(family.keys, "rope_parameters", &KeyRow::key);
  rope->read = [otherwise = *rope](const ConfigReader& config, HfConfig& result) {
    read_rope(config, result, otherwise);
  };
  add_query_key_norms(family, QkNormScope::head, "query_layernorm", "key_layernorm");
  family.defaults.qk_layernorm_placement = QkNormPlacement::after_rotary;
  return family;
}

}  // namespace

HfFamily hunyuan_v1_dense() {
  HfFamily family = hunyuan_like("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM");
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily hunyuan_v1_moe() {
  HfFamily family = hunyuan_like("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM");
  family.defaults.moe.num_experts = family.defaults.moe.router_topk = 1;
  family.add_keys(
      {{"num_experts", &M::num_experts, {.most = kMostExperts, .alias = "num_local_experts"}},
       {"moe_topk", read_topk, write_topk},
       {"intermediate_size", &M::ffn_hidden_size},
       {"", read_shared_width}});
  const std::string expert = "mlp.experts.{e}.";
  family.add_layer_tensors(expert_tensors(expert + "gate_proj.weight", expert + "up_proj.weight",
                                          expert + "down_proj.weight", "mlp.gate.wg.weight"));
  family.add_layer_tensors(shared_expert_tensors("mlp.shared_mlp"));
  return family;
}

}  // namespace megatron::families
