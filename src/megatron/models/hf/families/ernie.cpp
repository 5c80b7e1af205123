#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

constexpr const char *kStart = "moe_layer_start_index", *kEnd = "moe_layer_end_index",
                     *kInterval = "moe_layer_interval";

/// Every so many layers, from one to another, have experts.
void read_spaced_layers(const ConfigReader& config, HfConfig& result) {
  const std::int64_t layers = result.model.num_layers, start = config.integer(kStart, 1),
                     given_end = config.integer(kEnd, -1),
                     interval = config.size(kInterval, kWidest, 1);
  const std::int64_t end = given_end == -1 ? layers - 1 : given_end;
  std::vector<std::int64_t> experts;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    experts.push_back((layer + 1) % interval == 0 && layer >= start && layer <= end ? 1 : 0);
  if (!std::ranges::count(experts, 1))
    config.unsupported(kStart, "at least one layer must have experts");
  set_experts(result.model, experts);
}

void write_spaced_layers(const T& model, Json& json) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (model.kind(layer).has_experts()) layers.push_back(layer);
  if (layers.empty()) return;
  json[kStart] = layers.front();
  json[kEnd] = layers.back();
  json[kInterval] = layers.size() > 1 ? layers[1] - layers[0] : 1;
}

void read_shared_experts(const ConfigReader& config, HfConfig& result) {
  const char* key = "moe_num_shared_experts";
  const std::int64_t count = config.integer(key, 2);
  if (count < 0 || count > kMostExperts)
    config.unsupported(key, "it must be between 0 and " + std::to_string(kMostExperts));
  result.model.moe.shared_expert_intermediate_size = count * result.model.moe.ffn_hidden_size;
}

void write_shared_experts(const T& model, Json& json) {
  json["moe_num_shared_experts"] = num_shared_experts(model.moe);
}

/// The rotation is of pairs of adjacent channels.
HfFamily ernie_like(const std::string& model_type, const std::string& architecture,
                    std::int64_t groups, const AttentionKeys& keys) {
  HfFamily family = llama_like(model_type, architecture, groups, keys);
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.rotary_base = 500000;
  family.defaults.rotary_interleaved = true;
  family.defaults.untie_embeddings_and_output_weights = false;
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace

HfFamily ernie4_5() {
  HfFamily family = ernie_like("ernie4_5", "Ernie4_5ForCausalLM", 2, {.has_head_dim = true});
  family.defaults.kv_channels = 128;
  family.keys.emplace_back("use_bias", &T::add_bias_linear);
  return family;
}

HfFamily ernie4_5_moe() {
  HfFamily family = ernie_like("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", 4, {});
  M& moe = family.defaults.moe;
  moe.num_experts = 64;
  moe.router_topk = 6;
  moe.ffn_hidden_size = 1536;
  moe.aux_loss_coeff = {0.001};
  moe.router_enable_expert_bias = true;
  family.add_keys(
      {{"moe_num_experts", &M::num_experts, {.most = kMostExperts, .alias = "num_experts"}},
       {"moe_k", &M::router_topk, {.most_in = &M::num_experts, .alias = "num_experts_per_tok"}},
       {"moe_intermediate_size", &M::ffn_hidden_size},
       {"moe_num_shared_experts", read_shared_experts, write_shared_experts},
       {kStart, read_spaced_layers, write_spaced_layers},
       constant("moe_norm_min", 1e-12),
       constant("use_bias", false),
       aux_loss()});
  family.add_layer_tensors(expert_tensors());
  family.add_layer_tensors(shared_expert_tensors());
  const std::string bias = "moe_statics.e_score_correction_bias";
  TensorRow row{.ours = "mlp.router.expert_bias", .theirs = "mlp." + bias, .is_row = true};
  family.add_layer_tensors({row});
  row.theirs = "mlp.gate." + bias;
  row.is_alternative = true;
  family.add_layer_tensors({row});
  return family;
}

}  // namespace megatron::families
