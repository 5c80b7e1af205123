// Families with Mamba-2 layers.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/words.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The names of the kinds of layers and their symbols in patterns. Of two names exports write the
/// first.
constexpr std::array<std::pair<std::string_view, char>, 6> kLayerTypes{{{"linear_attention", 'M'},
                                                                        {"full_attention", '*'},
                                                                        {"moe", 'E'},
                                                                        {"mlp", '-'},
                                                                        {"mamba", 'M'},
                                                                        {"attention", '*'}}};

/// transformers writes the limit [0, ∞], which is none, in three ways.
void check_step_limit(const ConfigReader& config, HfConfig& /*result*/) {
  const Json *limit = config.find("time_step_limit"), none = {{"__float__", "Infinity"}};
  const bool is_none =
      limit == nullptr || (limit->is_array() && limit->size() == 2 && limit->at(0) == 0 &&
                           (limit->at(1).is_null() || limit->at(1) == none));
  if (!is_none) config.unsupported("time_step_limit", "set it to [0.0, Infinity]");
}

/// A layer of one block is one of ours.
HfFamily of_single_blocks(const std::string& model_type, const std::string& architecture) {
  HfFamily family{.model_type = model_type,
                  .architecture = architecture,
                  .keys = common_keys(),
                  .prefix = "backbone.",
                  .network = "hybrid"};
  T& model = family.defaults;
  model.normalization = Normalization::RMSNorm;
  model.position_embedding_type = PositionEmbedding::none;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
  model.hidden_dropout = model.attention_dropout = 0;
  family.add_keys({{"hidden_size", &T::hidden_size},
                   {"layer_norm_epsilon", &T::norm_epsilon, kPositive},
                   constant("use_bias", false)});
  family.add_tensors({{"embedding.word_embeddings.weight", "backbone.embeddings.weight"},
                      {"decoder.final_norm.weight", "backbone.norm_f.weight"},
                      {"output_layer.weight", "lm_head.weight"}});
  TensorRows rows = mamba_tensors("mixer.");
  rows.push_back({"mixer.in_proj.layer_norm_weight", "norm.weight"});
  family.add_layer_tensors(rows, "backbone.layers.{i}.");
  return family;
}

/// The experts of Nemotron-H are those of DeepSeek-V3 without gates; there may be none.
KeyRows nemotron_expert_keys() {
  const auto read_latent = [](const ConfigReader& config, HfConfig& result) {
    result.model.moe.latent_size =
        config.has("moe_latent_size") ? config.size("moe_latent_size") : 0;
  };
  const auto write_latent = [](const T& model, Json& json) {
    json["moe_latent_size"] = model.moe.latent_size > 0 ? Json(model.moe.latent_size) : Json();
  };
  const auto write_factor = [](const T& model, Json& json) {
    json["routed_scaling_factor"] = model.moe.router_topk_scaling_factor.value_or(1);
  };
  return {
      {"n_routed_experts", &M::num_experts, {.most = kMostExperts, .alias = "num_local_experts"}},
      {"num_experts_per_tok", &M::router_topk, {.most_in = &M::num_experts}},
      {"moe_intermediate_size", &M::ffn_hidden_size},
      {"moe_shared_expert_intermediate_size", &M::shared_expert_intermediate_size},
      {"moe_latent_size", read_latent, write_latent},
      {"routed_scaling_factor", &M::router_topk_scaling_factor, kPositive, write_factor},
      expert_groups("noaux_tc", "noaux_tc", 2, 1, 1),
      constant("norm_topk_prob", true)};
}

void read_nemotron_layers(const ConfigReader& config, HfConfig& result) {
  const char *list = "layers_block_type", *text = "hybrid_override_pattern";
  T& model = result.model;
  std::string& pattern = model.hybrid_layer_pattern;
  if (!config.has(list) && config.has("layer_types")) list = "layer_types";
  pattern = config.has(list) ? read_layer_types(config, list, "M*E-") : config.text(text, "ME*-");
  if (pattern.empty() || pattern.find_first_not_of("M*E-") != std::string::npos)
    config.unsupported(text, "it must consist of M, *, E and -");
  resolve_layers(model);
  if (!has_feed_forward(model, FeedForwardKind::experts)) return;
  M& moe = model.moe;
  moe.num_experts = 8;
  moe.ffn_hidden_size = moe.shared_expert_intermediate_size = 7688;
  read_keys(nemotron_expert_keys(), config, result);
}

void write_nemotron_layers(const T& model, Json& json) {
  const std::string pattern = pattern_of(model);
  json["hybrid_override_pattern"] = pattern;
  json["layers_block_type"] = layer_types_of(pattern);
  json["num_hidden_layers"] = pattern.size();
  json.erase("layer_types");
  if (model.moe.num_experts > 0) write_keys(nemotron_expert_keys(), model, json);
}

TensorRows nemotron_tensors() {
  const std::string fc1 = "mlp.experts.linear_fc1.weight", fc2 = "mlp.experts.linear_fc2.weight";
  TensorRows rows{{"self_attention.linear_qkv.layer_norm_weight", "norm.weight"},
                  {"self_attention.linear_qkv.weight", "mixer.q_proj.weight", kQuery},
                  {"self_attention.linear_qkv.weight", "mixer.k_proj.weight", kKey},
                  {"self_attention.linear_qkv.weight", "mixer.v_proj.weight", kValue},
                  {"self_attention.linear_proj.weight", "mixer.o_proj.weight"},
                  {"mlp.linear_fc1.layer_norm_weight", "norm.weight"},
                  {"mlp.linear_fc1.weight", "mixer.up_proj.weight"},
                  {"mlp.linear_fc2.weight", "mixer.down_proj.weight"},
                  {"pre_mlp_layernorm.weight", "norm.weight"},
                  {"mlp.router.weight", "mixer.gate.weight"},
                  {"mlp.router.expert_bias", "mixer.gate.e_score_correction_bias"},
                  {fc1, "mixer.experts.{e}.up_proj.weight"},
                  {fc2, "mixer.experts.{e}.down_proj.weight"},
                  stacked(fc1, "mixer.experts.up_proj"),
                  stacked(fc2, "mixer.experts.down_proj")};
  for (const char* name : {"fc1_latent_proj.weight", "fc2_latent_proj.weight"})
    rows.push_back({std::string("mlp.") + name, std::string("mixer.") + name});
  const std::string ours = "mlp.shared_experts.", theirs = "mixer.shared_experts.";
  rows.push_back({ours + "linear_fc1.weight", theirs + "up_proj.weight"});
  rows.push_back({ours + "linear_fc2.weight", theirs + "down_proj.weight"});
  return rows;
}

}  // namespace

std::string pattern_of(T model) {
  if (model.hybrid_layer_pattern.empty()) split_blocks(model);
  return HybridPattern(model.hybrid_layer_pattern).layers;
}

std::string read_layer_types(const ConfigReader& config, const std::string& key,
                             std::string_view symbols, std::int64_t count) {
  std::string pattern;
  const Json* list = config.find(key);
  if (list == nullptr || !list->is_array()) config.unsupported(key, "it must be a list");
  if (count > 0 && std::ssize(*list) != count)
    config.unsupported(key, "it must have an entry for each layer");
  for (const Json& name : *list) {
    const auto* const type = std::ranges::find_if(kLayerTypes, [&](const auto& one) {
      return name == one.first && symbols.find(one.second) != symbols.npos;
    });
    if (type == kLayerTypes.end())
      config.unsupported(
          key, "supported: " + joined_text(layer_types_of(symbols), ", ", [](const Json& known) {
                 return known.get<std::string>();
               }));
    pattern += type->second;
  }
  return pattern;
}

Json layer_types_of(std::string_view pattern) {
  Json types = Json::array();
  for (const char symbol : pattern) {
    const auto* const type =
        std::ranges::find(kLayerTypes, symbol, &std::pair<std::string_view, char>::second);
    types.push_back(type == kLayerTypes.end() ? "" : type->first);
  }
  return types;
}

std::string mixers_of(const T& model) {
  const std::string pattern = pattern_of(model);
  std::string mixers;
  for (std::size_t i = 0; i < pattern.size(); i += 2) mixers += pattern[i];
  return mixers;
}

void set_mixers(T& model, std::string_view mixers, char feed_forward) {
  model.hybrid_layer_pattern.clear();
  for (const char mixer : mixers) (model.hybrid_layer_pattern += mixer) += feed_forward;
  resolve_layers(model);
}

KeyRows mamba_keys(const MambaKeys& keys) {
  const auto read_sizes = [=](const ConfigReader& config, HfConfig& result) {
    MambaConfig& mamba = result.model.mamba;
    const Json* given = config.find(keys.head_dim);
    const std::int64_t hidden = result.model.hidden_size,
                       width = hidden * (keys.expand.empty() ? 2 : config.size(keys.expand, 64, 2));
    mamba.num_heads = config.size(keys.heads, kWidest, mamba.num_heads);
    if (given != nullptr && *given != "auto")
      mamba.head_dim = config.size(keys.head_dim);
    else if (mamba.head_dim == 0 || given != nullptr)
      mamba.head_dim = std::max<std::int64_t>(1, width / mamba.num_heads);
    if (!keys.expand.empty() && mamba.num_heads * mamba.head_dim != width)
      config.unsupported(keys.heads, "it must be " + keys.expand + " · hidden_size / " +
                                         keys.head_dim + ", here " +
                                         std::to_string(width / mamba.head_dim));
    mamba.norm_epsilon = result.model.norm_epsilon;
  };
  const auto write_sizes = [=](const T& model, Json& json) {
    const RecurrentSizes sizes = model.recurrent_sizes(MixerKind::mamba);
    json[keys.heads] = sizes.heads;
    json[keys.head_dim] = sizes.value_dim;
    if (!keys.expand.empty()) json[keys.expand] = sizes.value_channels() / model.hidden_size;
  };
  return {{keys.heads, read_sizes, write_sizes},
          {keys.state, &MambaConfig::state_dim},
          {keys.groups, &MambaConfig::num_groups},
          {keys.taps, &MambaConfig::conv_kernel_dim, {.most = kMostConvTaps}},
          constant(keys.conv_bias, true),
          {"time_step_limit", check_step_limit}};
}

TensorRows mamba_tensors(const std::string& theirs) {
  TensorRows rows;
  for (const char* name :
       {"in_proj.weight", "conv1d.{w}", "dt_bias", "A_log", "D", "norm.weight", "out_proj.weight"})
    rows.push_back({std::string("mixer.") + name, theirs + name});
  return rows;
}

HfFamily mamba2() {
  HfFamily family = of_single_blocks("mamba2", "Mamba2ForCausalLM");
  T& model = family.defaults;
  model.init_method_std = 0.1;
  model.num_attention_heads = 1;  // no layer has attention
  model.mamba.num_heads = 128;
  model.mamba.norm_groups = 1;
  const auto read_layers = [](const ConfigReader& config, HfConfig& result) {
    const auto count = static_cast<std::size_t>(config.size("num_hidden_layers", kMostLayers));
    result.model.hybrid_layer_pattern = std::string(count, 'M');
    resolve_layers(result.model);
  };
  const auto write_layers = [](const T& written, Json& json) {
    json["num_hidden_layers"] = written.num_layers;
  };
  family.add_keys(
      {{"num_hidden_layers", read_layers, write_layers}, constant("hidden_act", "silu")});
  family.add_keys(mamba_keys({.heads = "num_heads",
                              .head_dim = "head_dim",
                              .state = "state_size",
                              .groups = "n_groups",
                              .taps = "conv_kernel",
                              .conv_bias = "use_conv_bias",
                              .expand = "expand"}));
  return family;
}

HfFamily nemotron_h() {
  HfFamily family = of_single_blocks("nemotron_h", "NemotronHForCausalLM");
  family.ignored = "mtp.";
  family.other_prefix = "model.";
  T& model = family.defaults;
  model.num_query_groups = 8;
  model.kv_channels = 128;
  model.ffn_hidden_size = 21504;
  model.max_position_embeddings = 4096;
  model.activation = Activation::squared_relu;
  model.mamba.num_heads = 128;
  family.add_keys(
      {{"hybrid_override_pattern", read_nemotron_layers, write_nemotron_layers},
       {"num_attention_heads", &T::num_attention_heads},
       {"num_key_value_heads", &T::num_query_groups, {.divides = &T::num_attention_heads}},
       {"head_dim", &T::kv_channels, {.alias = "attention_head_dim"}},
       {"intermediate_size", &T::ffn_hidden_size},
       {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
       {"attention_dropout", &T::attention_dropout, {.range = kFraction}},
       {"mlp_hidden_act", &T::activation},
       constant("tie_word_embeddings", false),  // transformers does not tie them
       constant("mamba_hidden_act", "silu"),
       constant("attention_bias", false),
       constant("mlp_bias", false),
       constant("mamba_proj_bias", false)});
  family.add_keys(mamba_keys({.heads = "mamba_num_heads",
                              .head_dim = "mamba_head_dim",
                              .state = "ssm_state_size",
                              .groups = "n_groups",
                              .taps = "conv_kernel",
                              .conv_bias = "use_conv_bias"}));
  add_sigmoid_router(family);
  family.add_layer_tensors(nemotron_tensors(), "backbone.layers.{i}.");
  return family;
}

void add_mamba_mixers(HfFamily& family) {
  family.network = "hybrid";
  T& model = family.defaults;
  model.mamba.num_heads = 128;
  model.mamba.head_dim = 0;  // that of "auto"
  model.mamba.num_groups = model.mamba.norm_groups = 1;
  model.mamba.state_dim = 256;
  family.add_keys(mamba_keys({.heads = "mamba_n_heads",
                              .head_dim = "mamba_d_head",
                              .state = "mamba_d_state",
                              .groups = "mamba_n_groups",
                              .taps = "mamba_d_conv",
                              .conv_bias = "mamba_conv_bias",
                              .expand = "mamba_expand"}));
  family.add_keys({constant("mamba_proj_bias", false), constant("attention_bias", false)});
  // The mixer of a layer is one of our layers, and what follows is the next.
  const std::string layer = "decoder.layers.{i}.", mixer = "decoder.layers.{2i}.",
                    theirs = "model.layers.{i/2}.";
  for (TensorRow& row : family.tensors) {
    if (!row.ours.starts_with(layer)) continue;
    row.ours.replace(0, layer.size(), mixer);
    row.theirs.replace(0, std::string_view("model.layers.{i}.").size(), theirs);
  }
  TensorRows rows = mamba_tensors("mamba.");
  rows.push_back({"mixer.in_proj.layer_norm_weight", "input_layernorm.weight"});
  family.add_layer_tensors(rows, theirs, mixer);
}

HfFamily bamba() {
  HfFamily family =
      llama_like("bamba", "BambaForCausalLM", 8, {.partial_rotary = "partial_rotary_factor"});
  T& model = family.defaults;
  model.norm_epsilon = 1e-5;
  model.rotary_percent = 0.5;
  add_mamba_mixers(family);
  const char* key = "attn_layer_indices";
  const auto read_layers = [=](const ConfigReader& config, HfConfig& result) {
    std::string mixers(static_cast<std::size_t>(result.model.num_layers), 'M');
    const Json none = Json::array(), *given = config.find(key);
    for (const Json& layer : given != nullptr ? *given : none) {
      const std::int64_t i =
          given->is_array() && layer.is_number_integer() ? layer.get<std::int64_t>() : -1;
      if (i < 0 || i >= std::ssize(mixers)) config.unsupported(key, "it must be a list of layers");
      mixers[static_cast<std::size_t>(i)] = '*';
    }
    set_mixers(result.model, mixers, '-');
  };
  const auto write_layers = [=](const T& written, Json& json) {
    const std::string mixers = mixers_of(written);
    json["num_hidden_layers"] = mixers.size();
    Json& list = json[key] = Json::array();
    for (std::size_t i = 0; i < mixers.size(); ++i)
      if (mixers[i] == '*') list.push_back(i);
  };
  family.add_keys({{key, read_layers, write_layers}, constant("mlp_bias", false)});
  family.add_tensors({{"decoder.final_norm.weight", "model.final_layernorm.weight"}});
  TensorRows mlp = mlp_tensors();
  mlp.front().theirs = "pre_ff_layernorm.weight";
  for (TensorRow& row : mlp)
    if (row.theirs.starts_with("mlp.")) row.theirs.replace(0, 3, "feed_forward");
  family.add_layer_tensors(mlp, "model.layers.{i/2}.", "decoder.layers.{2i+1}.");
  return family;
}

}  // namespace megatron::families
