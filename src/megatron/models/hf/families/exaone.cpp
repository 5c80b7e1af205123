#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Returns whether the model has windows, and then no rotary positions in the other layers.
bool is_hybrid(const ConfigReader& config) { return !config.is_null("sliding_window"); }

/// Returns all but each N-th layer. A pattern of letters only has a meaning beside layer_types.
std::vector<std::int64_t> pattern_layers(const ConfigReader& config, const T& model) {
  if (!is_hybrid(config)) return {};
  const char* key = "sliding_window_pattern";
  if (config.is_null(key)) config.unsupported(key, "give layer_types");
  return all_but_multiples(config.size(key, kMaxSize, 4), model.num_layers);
}

void read_positions(const ConfigReader& config, HfConfig& result) {
  if (is_hybrid(config)) rotate_in_windows_alone(result.model);
}

void write_positions(const T& model, Json& json) {
  if (!model.window_size && !model.no_rope_freq.empty()) json["sliding_window"] = 4096;
}

}  // namespace

HfFamily exaone4() {
  HfFamily family = llama_like("exaone4", "Exaone4ForCausalLM", 32, {});
  family.defaults.norm_epsilon = 1e-5;
  add_query_key_norms(family, QkNormScope::head);
  norm_outputs(family);
  family.keys.push_back(sliding_window({.rule = pattern_layers}));
  family.keys.emplace_back("", read_positions, write_positions);
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace megatron::families
