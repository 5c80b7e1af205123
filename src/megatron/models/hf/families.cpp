// The tables of the built-in families: what differs from the defaults of TransformerConfig, the
// keys of config.json, and the tensors. docs/extending.md walks through a family.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/config/size_limits.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron {
namespace {

using T = TransformerConfig;
using M = MoeConfig;

constexpr Blocks kQuery{0, 1}, kKey{1, 1}, kValue{2, 1}, kQueryKeyValue{0, 3};
constexpr Blocks kGate{0, 1}, kUp{1, 1};
constexpr KeyMeaning kPositive{.range = kAboveZero};
constexpr KeyMeaning kNegated{.is_negated = true};
constexpr KeyMeaning kLayers{.most = kMostLayers, .alias = "num_hidden_layers"};
constexpr KeyMeaning kPositions{.most = kMaxSize, .alias = "max_position_embeddings"};
constexpr Windows kFromLayer{
    .has_switch = true,
    .includes = [](std::int64_t layer, std::int64_t most) { return layer >= most; }};

KeyRows common_keys() {
  return {{"vocab_size", &T::vocab_size, {.most = kMaxSize}},
          {"tie_word_embeddings", &T::untie_embeddings_and_output_weights, kNegated},
          {"initializer_range", &T::init_method_std}};
}

TensorRows mlp_tensors() {
  return {{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
          {"mlp.linear_fc1.{w}", "mlp.gate_proj.{w}", kGate},
          {"mlp.linear_fc1.{w}", "mlp.up_proj.{w}", kUp},
          {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}};
}

/// What transformers 5 has in place of the tensors of each expert.
TensorRow stacked(const std::string& ours, const std::string& theirs) {
  return {.ours = ours, .theirs = theirs, .is_alternative = true};
}

/// The names are below the layer; those of an expert have {e}.
TensorRows expert_tensors(const std::string& gate = "mlp.experts.{e}.gate_proj.weight",
                          const std::string& up = "mlp.experts.{e}.up_proj.weight",
                          const std::string& down = "mlp.experts.{e}.down_proj.weight",
                          const std::string& router = "mlp.gate.weight") {
  const std::string fc1 = "mlp.experts.linear_fc1.weight", fc2 = "mlp.experts.linear_fc2.weight";
  return {{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
          {"mlp.router.weight", router},
          {fc1, gate, kGate},
          {fc1, up, kUp},
          {fc2, down},
          stacked(fc1, "mlp.experts.gate_up_proj"),
          stacked(fc2, "mlp.experts.down_proj")};
}

/// A decoder with rotary positions and without dropout.
HfFamily decoder(const std::string& model_type, const std::string& architecture,
                 std::int64_t groups, bool writes_head_dim) {
  HfFamily family{.model_type = model_type, .architecture = architecture, .keys = common_keys()};
  family.defaults.num_query_groups = groups;
  family.defaults.position_embedding_type = PositionEmbedding::rope;
  family.defaults.hidden_dropout = family.defaults.attention_dropout = 0;
  family.add_keys({{"num_hidden_layers", &T::num_layers, {.most = kMostLayers}},
                   {"hidden_size", &T::hidden_size},
                   {"intermediate_size", &T::ffn_hidden_size},
                   {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
                   {"hidden_act", &T::activation}});
  family.add_keys(attention_keys(writes_head_dim));
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

/// A decoder with RMS norms and gated units, and without biases. It has an MLP or experts.
HfFamily llama_like(const std::string& model_type, const std::string& architecture,
                    std::int64_t groups, bool writes_head_dim) {
  HfFamily family = decoder(model_type, architecture, groups, writes_head_dim);
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

/// Adds the keys of experts: their number, which may have another spelling, and the width of one.
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

void add_optional_normalization(HfFamily& family) {
  family.defaults.moe.router_pre_softmax = true;
  family.keys.emplace_back("norm_topk_prob", &M::router_pre_softmax, kNegated);
}

void add_query_key_norms(HfFamily& family, QkNormScope scope) {
  family.defaults.qk_layernorm = true;
  family.defaults.qk_layernorm_scope = scope;
  family.keys.push_back(constant("attention_bias", false));
  family.add_layer_tensors({{"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
                            {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"}});
}

void read_gpt2_heads(const ConfigReader& config, HfConfig& result) {
  result.model.kv_channels = even_head_dim(config, config.has("n_embd") ? "n_embd" : "hidden_size",
                                           config.has("n_head") ? "n_head" : "num_attention_heads");
}

void read_gpt2_inner(const ConfigReader& config, HfConfig& result) {
  if (config.has("n_inner")) result.model.ffn_hidden_size = config.size("n_inner");
}

void write_gpt2_inner(const T& model, Json& json) {
  const bool is_default = model.ffn_hidden_size == 4 * model.hidden_size;
  json["n_inner"] = is_default ? Json() : Json(model.ffn_hidden_size);
  if (json.contains("n_ctx")) json["n_ctx"] = model.max_position_embeddings;
}

void read_gpt2_scale(const ConfigReader& config, HfConfig& result) {
  if (!config.boolean("scale_attn_weights", true)) result.model.softmax_scale = 1.0;
}

void write_gpt2_scale(const T& model, Json& json) {
  json["scale_attn_weights"] = !model.softmax_scale.has_value();
}

HfFamily gpt2() {
  const auto conv1d = [](const std::string& ours, const std::string& theirs, Blocks blocks = {}) {
    return TensorRow{.ours = ours, .theirs = theirs, .blocks = blocks, .is_transposed = true};
  };
  HfFamily family{.model_type = "gpt2",
                  .architecture = "GPT2LMHeadModel",
                  .keys = {{"n_layer", &T::num_layers, kLayers},
                           {"n_embd", &T::hidden_size, {.alias = "hidden_size"}},
                           {"n_head", &T::num_attention_heads, {.alias = "num_attention_heads"}},
                           {"", read_gpt2_heads},
                           {"n_inner", read_gpt2_inner, write_gpt2_inner},
                           {"n_positions", &T::max_position_embeddings, kPositions},
                           {"layer_norm_epsilon", &T::norm_epsilon, kPositive},
                           {"activation_function", &T::activation},
                           {"scale_attn_weights", read_gpt2_scale, write_gpt2_scale}},
                  .prefix = "transformer.",
                  .buffers = {".attn.bias", ".attn.masked_bias"}};
  family.defaults.num_query_groups = 0;
  family.defaults.activation = Activation::gelu_tanh;
  family.add_keys(common_keys());
  family.add_keys(dropout_keys("attn_pdrop", "resid_pdrop", "embd_pdrop"));
  family.add_layer_tensors(
      {{"self_attention.linear_qkv.layer_norm_{w}", "ln_1.{w}"},
       conv1d("self_attention.linear_qkv.{w}", "attn.c_attn.{w}", kQueryKeyValue),
       conv1d("self_attention.linear_proj.{w}", "attn.c_proj.{w}"),
       {"mlp.linear_fc1.layer_norm_{w}", "ln_2.{w}"},
       conv1d("mlp.linear_fc1.{w}", "mlp.c_fc.{w}"),
       conv1d("mlp.linear_fc2.{w}", "mlp.c_proj.{w}")},
      "transformer.h.{i}.");
  family.add_tensors({{"embedding.word_embeddings.weight", "transformer.wte.weight"},
                      {"embedding.position_embeddings.weight", "transformer.wpe.weight"},
                      {"decoder.final_layernorm.{w}", "transformer.ln_f.{w}"},
                      {"output_layer.weight", "lm_head.weight"}});
  return family;
}

HfFamily llama() {
  HfFamily family = llama_like("llama", "LlamaForCausalLM", 0, /*writes_head_dim=*/true);
  family.needs_even_heads = true;
  const auto read_biases = [](const ConfigReader& config, HfConfig& result) {
    const bool attention = config.boolean("attention_bias", false);
    if (attention != config.boolean("mlp_bias", false))
      config.unsupported(attention ? "attention_bias" : "mlp_bias",
                         "attention_bias and mlp_bias must be equal");
    result.model.add_bias_linear = attention;
  };
  family.keys.emplace_back("attention_bias", read_biases, [](const T& model, Json& json) {
    json["attention_bias"] = json["mlp_bias"] = model.add_bias_linear;
  });
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily qwen2() {
  HfFamily family = llama_like("qwen2", "Qwen2ForCausalLM", 32, /*writes_head_dim=*/false);
  family.defaults.add_qkv_bias = true;
  family.keys.push_back(sliding_window(kFromLayer));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily qwen3() {
  HfFamily family = llama_like("qwen3", "Qwen3ForCausalLM", 32, /*writes_head_dim=*/true);
  family.defaults.kv_channels = 128;
  add_query_key_norms(family, QkNormScope::head);
  family.keys.push_back(sliding_window(kFromLayer));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily mistral() {
  HfFamily family = llama_like("mistral", "MistralForCausalLM", 8, /*writes_head_dim=*/true);
  family.keys.push_back(sliding_window({}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily mixtral() {
  HfFamily family = llama_like("mixtral", "MixtralForCausalLM", 8, /*writes_head_dim=*/true);
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

HfFamily qwen2_moe() {
  HfFamily family = llama_like("qwen2_moe", "Qwen2MoeForCausalLM", 16, /*writes_head_dim=*/false);
  family.defaults.add_qkv_bias = true;
  family.keys.emplace_back("qkv_bias", &T::add_qkv_bias);
  family.keys.push_back(
      sliding_window({.has_switch = true, .includes = [](std::int64_t layer, std::int64_t limit) {
                        return layer < limit && layer % 2 == 0;
                      }}));
  add_experts(family, "num_experts", "", "moe_intermediate_size", 60, 4);
  add_optional_normalization(family);
  M& moe = family.defaults.moe;
  moe.ffn_hidden_size = 1408;
  moe.shared_expert_intermediate_size = 5632;
  moe.shared_expert_gate = true;
  family.add_keys(
      {{"shared_expert_intermediate_size", &M::shared_expert_intermediate_size}, expert_layers()});
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  const std::string ours = "mlp.shared_experts.", theirs = "mlp.shared_expert";
  family.add_layer_tensors({{ours + "linear_fc1.weight", theirs + ".gate_proj.weight", kGate},
                            {ours + "linear_fc1.weight", theirs + ".up_proj.weight", kUp},
                            {ours + "linear_fc2.weight", theirs + ".down_proj.weight"},
                            {ours + "gate_weight", theirs + "_gate.weight"}});
  return family;
}

HfFamily qwen3_moe() {
  HfFamily family = llama_like("qwen3_moe", "Qwen3MoeForCausalLM", 4, /*writes_head_dim=*/true);
  add_query_key_norms(family, QkNormScope::head);
  family.keys.push_back(sliding_window({.has_switch = true}));
  add_experts(family, "num_experts", "num_local_experts", "moe_intermediate_size", 128, 8);
  add_optional_normalization(family);
  family.defaults.moe.ffn_hidden_size = 768;
  family.keys.push_back(expert_layers());
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  return family;
}

HfFamily olmoe() {
  HfFamily family = llama_like("olmoe", "OlmoeForCausalLM", 0, /*writes_head_dim=*/false);
  family.defaults.norm_epsilon = 1e-5;
  family.keys.emplace_back("clip_qkv", &T::clip_qkv, kPositive);
  add_query_key_norms(family, QkNormScope::all_heads);
  add_experts(family, "num_experts", "num_local_experts", "intermediate_size", 64, 8);
  add_optional_normalization(family);
  family.defaults.moe.aux_loss_coeff = {0.01};
  family.add_layer_tensors(expert_tensors());
  return family;
}

HfFamily starcoder2() {
  HfFamily family = decoder("starcoder2", "Starcoder2ForCausalLM", 2, /*writes_head_dim=*/false);
  family.defaults.activation = Activation::gelu_tanh;
  family.defaults.init_method_std = 0.018042;
  family.add_keys(
      {{"norm_epsilon", &T::norm_epsilon, kPositive}, {"use_bias", &T::add_bias_linear}});
  family.add_keys(dropout_keys("attention_dropout", "residual_dropout", "embedding_dropout"));
  family.keys.push_back(sliding_window({.width = 0}));
  family.tensors.push_back({"decoder.final_layernorm.bias", "model.norm.bias"});
  family.add_layer_tensors({{"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"},
                            {"mlp.linear_fc1.layer_norm_{w}", "post_attention_layernorm.{w}"},
                            {"mlp.linear_fc1.{w}", "mlp.c_fc.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.c_proj.{w}"}});
  return family;
}

/// The heads of multi-latent attention, of which none shares keys and values, and their latents.
KeyRows latent_attention_keys() {
  const auto read_groups = [](const ConfigReader& config, HfConfig& result) {
    const std::int64_t heads = result.model.num_attention_heads;
    result.model.num_query_groups = heads;
    if (config.size("num_key_value_heads", kWidest, heads) != heads)
      config.unsupported("num_key_value_heads", "it must equal num_attention_heads");
  };
  const auto write_groups = [](const T& model, Json& json) {
    json["num_key_value_heads"] = model.num_attention_heads;
  };
  const auto read_rank = [](const ConfigReader& config, HfConfig& result) {
    if (config.has("q_lora_rank"))
      result.model.q_lora_rank = config.size("q_lora_rank");
    else if (config.is_null("q_lora_rank"))
      result.model.q_lora_rank = 0;
  };
  const auto write_rank = [](const T& model, Json& json) {
    json["q_lora_rank"] = model.q_lora_rank > 0 ? Json(model.q_lora_rank) : Json();
  };
  const auto write_rotated = [](const T& model, Json& json) {
    json["qk_rope_head_dim"] = json["head_dim"] = model.qk_pos_emb_head_dim;
    if (json.contains("qk_head_dim")) json["qk_head_dim"] = model.qk_channels();
  };
  return {{"num_key_value_heads", read_groups, write_groups},
          {"q_lora_rank", read_rank, write_rank},
          {"kv_lora_rank", &T::kv_lora_rank},
          {"qk_nope_head_dim", &T::qk_head_dim},
          {"qk_rope_head_dim", &T::qk_pos_emb_head_dim, {}, write_rotated},
          {"v_head_dim", &T::v_head_dim}};
}

/// topk_method, n_group and topk_group. With the method `limited` only experts of the best groups
/// are chosen, where a group has the score of its `scored` best experts; with `otherwise` they do
/// not count.
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

/// Which layers have experts, and the width of the shared ones.
KeyRows deepseek_expert_keys(std::int64_t num_dense, std::int64_t num_shared) {
  const auto read_dense = [=](const ConfigReader& config, HfConfig& result) {
    const std::int64_t layers = result.model.num_layers,
                       dense = config.integer("first_k_dense_replace", num_dense);
    if (dense < 0 || dense >= layers)
      config.unsupported("first_k_dense_replace", "at least one layer must have experts");
    std::vector<std::int64_t> experts(static_cast<std::size_t>(layers), 1);
    std::fill_n(experts.begin(), dense, 0);
    set_experts(result.model, dense > 0 ? experts : std::vector<std::int64_t>());
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
    json["n_shared_experts"] = moe.shared_expert_intermediate_size / moe.ffn_hidden_size;
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

/// Multi-latent attention, and experts in all but the first layers.
HfFamily deepseek(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 0, /*writes_head_dim=*/false);
  std::erase_if(family.keys, [](const KeyRow& row) {
    return row.key == "num_key_value_heads" || row.key == "head_dim";
  });
  std::erase_if(family.tensors, [](const TensorRow& row) {
    return row.ours.find("linear_qkv") != std::string::npos;
  });
  T& model = family.defaults;
  model.multi_latent_attention = model.qk_layernorm = true;
  model.latent_norm_epsilon = 1e-6;
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  family.add_keys(latent_attention_keys());
  family.keys.push_back(constant("attention_bias", false));
  const std::string attention = "self_attention.", theirs = "self_attn.";
  family.add_layer_tensors(
      {{"input_layernorm.weight", "input_layernorm.weight"},
       {attention + "linear_q_proj.weight", theirs + "q_proj.weight"},
       {attention + "linear_q_down_proj.weight", theirs + "q_a_proj.weight"},
       {attention + "linear_q_up_proj.layer_norm_weight", theirs + "q_a_layernorm.weight"},
       {attention + "linear_q_up_proj.weight", theirs + "q_b_proj.weight"},
       {attention + "linear_kv_down_proj.weight", theirs + "kv_a_proj_with_mqa.weight"},
       {attention + "linear_kv_up_proj.layer_norm_weight", theirs + "kv_a_layernorm.weight"},
       {attention + "linear_kv_up_proj.weight", theirs + "kv_b_proj.weight"}});
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  const std::string shared = "mlp.shared_experts.";
  family.add_layer_tensors({{shared + "linear_fc1.weight", shared + "gate_proj.weight", kGate},
                            {shared + "linear_fc1.weight", shared + "up_proj.weight", kUp},
                            {shared + "linear_fc2.weight", shared + "down_proj.weight"}});
  return family;
}

HfFamily deepseek_v2() {
  HfFamily family = deepseek("deepseek_v2", "DeepseekV2ForCausalLM");
  family.needs_even_heads = true;
  M& moe = family.defaults.moe;
  moe.num_experts = 64;
  moe.router_topk = 0;  // the class has none
  moe.ffn_hidden_size = 1407;
  moe.router_pre_softmax = true;
  family.add_keys(deepseek_expert_keys(0, 2));
  family.add_keys({expert_groups("group_limited_greedy", "greedy", 1, 1, 1),
                   constant("norm_topk_prob", false), constant("mlp_bias", false),
                   constant("scoring_func", "softmax")});
  return family;
}

HfFamily deepseek_v3() {
  HfFamily family = deepseek("deepseek_v3", "DeepseekV3ForCausalLM");
  M& moe = family.defaults.moe;
  moe.num_experts = 256;
  moe.router_topk = 8;
  moe.ffn_hidden_size = 2048;
  moe.router_score_function = RouterScore::sigmoid;
  moe.router_enable_expert_bias = true;
  moe.router_topk_scaling_factor = 2.5;
  family.add_keys(deepseek_expert_keys(3, 1));
  family.add_keys({expert_groups("noaux_tc", "noaux_tc", 2, 8, 4), constant("norm_topk_prob", true),
                   constant("rope_interleave", true), constant("scoring_func", "sigmoid")});
  // One expert would have the weight 1, which ours has not.
  family.keys.emplace_back("num_experts_per_tok", [](const ConfigReader& config, HfConfig& result) {
    if (result.model.moe.router_topk == 1)
      config.unsupported("num_experts_per_tok", "it must be above 1");
  });
  family.add_layer_tensors({{"mlp.router.expert_bias", "mlp.gate.e_score_correction_bias"}});
  return family;
}

/// Kimi K2 is a DeepSeek-V3 of another name.
HfFamily kimi_k2() {
  HfFamily family = deepseek_v3();
  family.model_type = "kimi_k2";
  return family;
}

}  // namespace

const std::vector<HfFamily>& hf_families() {
  static const std::vector<HfFamily> families{
      gpt2(),      llama(), qwen2(),      qwen3(),       mistral(),     mixtral(), qwen2_moe(),
      qwen3_moe(), olmoe(), starcoder2(), deepseek_v2(), deepseek_v3(), kimi_k2()};
  return families;
}

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto found = std::ranges::find(hf_families(), model_type, &HfFamily::model_type);
  return found == hf_families().end() ? nullptr : &*found;
}

void HfFamily::add_layer_tensors(TensorRows rows, const std::string& layer) {
  for (TensorRow& row : rows) {
    row.ours = "decoder.layers.{i}." + row.ours;
    row.theirs = layer + row.theirs;
  }
  add_tensors(rows);
}

}  // namespace megatron
