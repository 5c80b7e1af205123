#include "megatron/models/hf/families/family_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"

namespace megatron::families {

std::int64_t num_shared_experts(const M& moe) {
  return moe.shared_expert_intermediate_size / std::max<std::int64_t>(1, moe.ffn_hidden_size);
}

KeyRows common_keys() {
  return {{"vocab_size", &T::vocab_size, {.most = kMaxSize}},
          {"tie_word_embeddings", &T::untie_embeddings_and_output_weights, kNegated},
          {"initializer_range", &T::init_method_std}};
}

KeyRow biases() {
  const auto read = [](const ConfigReader& config, HfConfig& result) {
    const bool attention = config.boolean("attention_bias", false);
    if (attention != config.boolean("mlp_bias", false))
      config.unsupported(attention ? "attention_bias" : "mlp_bias",
                         "attention_bias and mlp_bias must be equal");
    result.model.add_bias_linear = attention;
  };
  return {"attention_bias", read, [](const T& model, Json& json) {
            json["attention_bias"] = json["mlp_bias"] = model.add_bias_linear;
          }};
}

TensorRows mlp_tensors() {
  return {{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
          {"mlp.linear_fc1.{w}", "mlp.gate_proj.{w}", kGate},
          {"mlp.linear_fc1.{w}", "mlp.up_proj.{w}", kUp},
          {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}};
}

TensorRow stacked(const std::string& ours, const std::string& theirs) {
  return {.ours = ours, .theirs = theirs, .is_alternative = true};
}

TensorRows expert_tensors(const std::string& gate, const std::string& up, const std::string& down,
                          const std::string& router) {
  const std::string fc1 = "mlp.experts.linear_fc1.weight", fc2 = "mlp.experts.linear_fc2.weight";
  return {{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
          {"mlp.router.weight", router},
          {fc1, gate, kGate},
          {fc1, up, kUp},
          {fc2, down},
          stacked(fc1, "mlp.experts.gate_up_proj"),
          stacked(fc2, "mlp.experts.down_proj")};
}

TensorRows shared_expert_tensors(const std::string& theirs) {
  const std::string ours = "mlp.shared_experts.";
  return {{ours + "linear_fc1.weight", theirs + ".gate_proj.weight", kGate},
          {ours + "linear_fc1.weight", theirs + ".up_proj.weight", kUp},
          {ours + "linear_fc2.weight", theirs + ".down_proj.weight"}};
}

HfFamily decoder(const std::string& model_type, const std::string& architecture,
                 std::int64_t groups, const AttentionKeys& keys) {
  HfFamily family{.model_type = model_type, .architecture = architecture, .keys = common_keys()};
  family.defaults.num_query_groups = groups;
  family.defaults.position_embedding_type = PositionEmbedding::rope;
  family.defaults.hidden_dropout = family.defaults.attention_dropout = 0;
  family.add_keys({{"num_hidden_layers", &T::num_layers, {.most = kMostLayers}},
                   {"hidden_size", &T::hidden_size},
                   {"intermediate_size", &T::ffn_hidden_size},
                   {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
                   {"hidden_act", &T::activation}});
  family.add_keys(attention_keys(keys));
  family.add_layer_tensors(
      {{"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
       {"self_attention.linear_qkv.{w}", "self_attn.q_proj.{w}", kQuery},
       {"self_attention.linear_qkv.{w}", "self_attn.k_proj.{w}", kKey},
       {"self_attention.linear_qkv.{w}", "self_attn.v_proj.{w}", kValue},
       {"self_attention.linear_proj.{w}", "self_attn.o_proj.{w}"}});
  family.add_tensors({{"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
                      {"decoder.final_layernorm.weight", "model.norm.weight"},
                      {"output_layer.weight", "lm_head.weight"}});
  return family;
}

HfFamily llama_like(const std::string& model_type, const std::string& architecture,
                    std::int64_t groups, const AttentionKeys& keys) {
  HfFamily family = decoder(model_type, architecture, groups, keys);
  family.defaults.normalization = Normalization::RMSNorm;
  family.defaults.norm_epsilon = 1e-6;
  family.defaults.activation = Activation::silu;
  family.defaults.gated_linear_unit = true;
  family.defaults.add_bias_linear = false;
  family.defaults.untie_embeddings_and_output_weights = true;
  family.add_keys({{"rms_norm_eps", &T::norm_epsilon, kPositive},
                   {"attention_dropout", &T::attention_dropout, {.range = kFraction}}});
  return family;
}

void add_experts(HfFamily& family, const std::string& number, std::string_view alias,
                 const std::string& width, std::int64_t default_number, std::int64_t topk) {
  M& moe = family.defaults.moe;
  moe.num_experts = default_number;
  moe.router_topk = topk;
  moe.aux_loss_coeff = {0.001};
  family.add_keys({{number, &M::num_experts, {.most = kMostExperts, .alias = alias}},
                   {"num_experts_per_tok", &M::router_topk, {.most_in = &M::num_experts}},
                   {width, &M::ffn_hidden_size},
                   aux_loss()});
}

KeyRow expert_groups(const std::string& limited, const std::string& otherwise, std::int64_t scored,
                     std::int64_t groups, std::int64_t chosen) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    M& moe = result.model.moe;
    const std::string method = config.text("topk_method", otherwise);
    if (method != limited && method != otherwise)
      config.unsupported("topk_method", "supported: " + limited);
    const std::int64_t number = config.size("n_group", kMostExperts, groups),
                       best = config.size("topk_group", kMostExperts, chosen);
    if (method != limited || best >= number) return;
    if (moe.num_experts % number != 0 || moe.num_experts / number < scored)
      config.unsupported("n_group", "it must divide n_routed_experts into groups of at least " +
                                        std::to_string(scored));
    moe.router_num_groups = number;
    moe.router_group_topk = best;
    moe.router_group_score_topk = scored;
  };
  const auto write = [=](const T& model, Json& json) {
    json["n_group"] = model.moe.router_num_groups.value_or(1);
    json["topk_group"] = model.moe.router_group_topk.value_or(1);
    json["topk_method"] = model.moe.router_num_groups ? limited : otherwise;
  };
  return {"n_group", read, write};
}

KeyRows routed_expert_keys(std::int64_t num_dense, std::int64_t num_shared) {
  const auto read_dense = [=](const ConfigReader& config, HfConfig& result) {
    const std::int64_t layers = result.model.num_layers,
                       dense = config.integer("first_k_dense_replace", num_dense);
    if (dense < 0 || dense >= layers)
      config.unsupported("first_k_dense_replace", "at least one layer must have experts");
    std::vector<std::int64_t> experts(static_cast<std::size_t>(layers), 1);
    std::fill_n(experts.begin(), dense, 0);
    set_experts(result.model, experts);
  };
  const auto write_dense = [](const T& model, Json& json) {
    std::int64_t dense = 0;
    while (dense < model.num_layers && !model.kind(dense).has_experts()) ++dense;
    json["first_k_dense_replace"] = dense;
  };
  const auto read_shared = [=](const ConfigReader& config, HfConfig& result) {
    M& moe = result.model.moe;
    const std::int64_t absent = config.is_null("n_shared_experts") ? 0 : num_shared;
    moe.shared_expert_intermediate_size =
        config.integer("n_shared_experts", absent) * moe.ffn_hidden_size;
  };
  const auto write_shared = [](const T& model, Json& json) {
    const M& moe = model.moe;
    json["n_shared_experts"] = num_shared_experts(moe);
  };
  const auto write_factor = [](const T& model, Json& json) {
    json["routed_scaling_factor"] = model.moe.router_topk_scaling_factor.value_or(1);
  };
  return {
      {"n_routed_experts", &M::num_experts, {.most = kMostExperts, .alias = "num_local_experts"}},
      {"num_experts_per_tok", &M::router_topk, {.most_in = &M::num_experts}},
      {"moe_intermediate_size", &M::ffn_hidden_size},
      {"first_k_dense_replace", read_dense, write_dense},
      {"n_shared_experts", read_shared, write_shared},
      {"routed_scaling_factor", &M::router_topk_scaling_factor, kPositive, write_factor},
      constant("moe_layer_freq", 1)};
}

void add_sigmoid_router(HfFamily& family) {
  family.defaults.moe.router_score_function = RouterScore::sigmoid;
  family.defaults.moe.router_enable_expert_bias = true;
  family.keys.emplace_back("num_experts_per_tok", [](const ConfigReader& config, HfConfig& result) {
    if (result.model.moe.router_topk == 1)
      config.unsupported("num_experts_per_tok", "it must be above 1");
  });
}

void add_optional_normalization(HfFamily& family) {
  family.defaults.moe.router_pre_softmax = true;
  family.keys.emplace_back("norm_topk_prob", &M::router_pre_softmax, kNegated);
}

TensorRows query_key_norm_tensors(const std::string& query, const std::string& key) {
  return {{"self_attention.q_layernorm.weight", "self_attn." + query + ".weight"},
          {"self_attention.k_layernorm.weight", "self_attn." + key + ".weight"}};
}

void add_query_key_norms(HfFamily& family, QkNormScope scope, const std::string& query,
                         const std::string& key) {
  family.defaults.qk_layernorm = true;
  family.defaults.qk_layernorm_scope = scope;
  family.keys.push_back(constant("attention_bias", false));
  family.add_layer_tensors(query_key_norm_tensors(query, key));
}

void rotate_in_windows_alone(T& model) {
  std::vector<std::int64_t> nope;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    nope.push_back(model.kind(layer).window ? 0 : 1);
  set_nope(model, nope);
}

KeyRows delta_net_keys() {
  using L = LinearAttentionConfig;
  const auto read_layers = [](const ConfigReader& config, HfConfig& result) {
    T& model = result.model;
    std::vector<std::int64_t> linear =
        all_but_multiples(config.size("full_attention_interval", kMostLayers, 4), model.num_layers);
    if (config.has("layer_types")) {
      linear.clear();
      for (const char mixer : read_layer_types(config, "layer_types", "M*", model.num_layers))
        linear.push_back(mixer == 'M' ? 1 : 0);
    }
    set_linear_attention(model, linear);
  };
  const auto write_layers = [](const T& model, Json& json) {
    std::string mixers;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
      mixers += model.kind(layer).is_recurrent() ? 'M' : '*';
    json["layer_types"] = layer_types_of(mixers);
    json.erase("full_attention_interval");
  };
  return {{"layer_types", read_layers, write_layers},
          constant("hidden_act", "silu"),  // also that of the convolution
          {"linear_conv_kernel_dim", &L::conv_kernel_dim, {.most = kMostConvTaps}},
          {"linear_key_head_dim", &L::key_head_dim},
          {"linear_value_head_dim", &L::value_head_dim},
          {"linear_num_key_heads", &L::num_key_heads},
          {"linear_num_value_heads", &L::num_value_heads}};
}

void norm_outputs(HfFamily& family) {
  family.defaults.norm_placement = NormPlacement::output;
  family.add_layer_tensors({{"post_self_attn_layernorm.weight", "post_attention_layernorm.weight"},
                            {"post_mlp_layernorm.weight", "post_feedforward_layernorm.weight"}});
}

}  // namespace megatron::families
