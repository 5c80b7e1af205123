// The tables of the built-in families: what differs from the defaults of TransformerConfig, the
// keys of config.json, and the tensors. docs/extending.md walks through a family.
#include <algorithm>
#include <iterator>

#include "megatron/config/size_limits.h"
#include "megatron/models/hf/special_keys.h"

namespace megatron {
namespace {

using T = TransformerConfig;
using M = MoeConfig;

constexpr Blocks kQuery{0, 1}, kKey{1, 1}, kValue{2, 1}, kQueryKeyValue{0, 3};
constexpr Blocks kGate{0, 1}, kUp{1, 1};
constexpr KeyMeaning kPositive{.range = KeyMeaning::Range::above_zero};
constexpr KeyMeaning kHiddenDropout{.range = KeyMeaning::Range::fraction,
                                    .trains = "hidden_dropout"};
constexpr KeyMeaning kAttentionDropout{.range = KeyMeaning::Range::fraction,
                                       .trains = "attention_dropout"};

constexpr KeyMeaning kNegated{.is_negated = true};

T changed(T model, void (*change)(T& model)) {
  change(model);
  return model;
}

T decoder_defaults() {
  return changed({}, [](T& model) {
    model.num_query_groups = 0;  // as many as heads
    model.position_embedding_type = PositionEmbedding::rope;
    model.hidden_dropout = model.attention_dropout = 0;
  });
}

T llama_defaults() {
  return changed(decoder_defaults(), [](T& model) {
    model.normalization = Normalization::RMSNorm;
    model.norm_epsilon = 1e-6;
    model.activation = Activation::silu;
    model.gated_linear_unit = true;
    model.add_bias_linear = false;
    model.untie_embeddings_and_output_weights = true;
  });
}

/// Of Qwen's and Mistral's models, with a number of key-value heads and a window.
T grouped_defaults(std::int64_t groups, std::int64_t window = 4096) {
  T model = llama_defaults();
  model.num_query_groups = groups;
  if (window > 0) model.window_size = {window - 1, 0};
  return model;
}

T with_experts(T model, std::int64_t number, std::int64_t topk, std::int64_t width = 0) {
  model.moe.num_experts = number;
  model.moe.router_topk = topk;
  model.moe.ffn_hidden_size = width;
  model.moe.router_pre_softmax = true;
  model.moe.aux_loss_coeff = {0.001};
  return model;
}

KeyRows common_keys() {
  return {{"vocab_size", &T::vocab_size, {.most = kMaxSize}},
          {"tie_word_embeddings", &T::untie_embeddings_and_output_weights, kNegated},
          {"initializer_range", &T::init_method_std, {.trains = "init_method_std"}}};
}

/// Of decoders with rotary positions.
KeyRows decoder_keys() {
  return joined_keys({common_keys(),
                      {{"num_hidden_layers", &T::num_layers, {.most = kMostLayers}},
                       {"hidden_size", &T::hidden_size},
                       {"num_attention_heads", &T::num_attention_heads},
                       {"intermediate_size", &T::ffn_hidden_size},
                       {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
                       key_value_heads(),
                       head_dim(/*is_always_written=*/false),
                       {"hidden_act", &T::activation},
                       {"attention_dropout", &T::attention_dropout, kAttentionDropout},
                       rope()}});
}

KeyRows llama_keys(const KeyRows& rows) {
  return joined_keys({decoder_keys(), {{"rms_norm_eps", &T::norm_epsilon, kPositive}}, rows});
}

KeyRow number_of_experts(const std::string& key, std::string_view alias = {}) {
  return {key, &M::num_experts, {.most = kMostExperts, .alias = alias}};
}

TensorRows decoder_tensors() {
  return joined_tensors(
      {{{"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
        {"decoder.final_layernorm.weight", "model.norm.weight"},
        {"output_layer.weight", "lm_head.weight"}},
       in_layers({{"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
                  {"self_attention.linear_qkv.{w}", "self_attn.q_proj.{w}", kQuery},
                  {"self_attention.linear_qkv.{w}", "self_attn.k_proj.{w}", kKey},
                  {"self_attention.linear_qkv.{w}", "self_attn.v_proj.{w}", kValue},
                  {"self_attention.linear_proj.{w}", "self_attn.o_proj.{w}"}})});
}

TensorRows query_key_norm_tensors() {
  return in_layers({{"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
                    {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"}});
}

TensorRows mlp_tensors() {
  return in_layers({{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
                    {"mlp.linear_fc1.{w}", "mlp.gate_proj.{w}", kGate},
                    {"mlp.linear_fc1.{w}", "mlp.up_proj.{w}", kUp},
                    {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}});
}

/// What transformers 5 has in place of the tensors of each expert.
TensorRow stacked(const std::string& ours, const std::string& theirs) {
  return {.ours = ours, .theirs = theirs, .is_alternative = true};
}

TensorRows expert_tensors() {
  return in_layers({{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
                    {"mlp.router.weight", "mlp.gate.weight"},
                    {"mlp.experts.linear_fc1.weight", "mlp.experts.{e}.gate_proj.weight", kGate},
                    {"mlp.experts.linear_fc1.weight", "mlp.experts.{e}.up_proj.weight", kUp},
                    {"mlp.experts.linear_fc2.weight", "mlp.experts.{e}.down_proj.weight"},
                    stacked("mlp.experts.linear_fc1.weight", "mlp.experts.gate_up_proj"),
                    stacked("mlp.experts.linear_fc2.weight", "mlp.experts.down_proj")});
}

HfFamily gpt2() {
  const auto conv1d = [](const std::string& ours, const std::string& theirs, Blocks blocks = {}) {
    return TensorRow{.ours = ours, .theirs = theirs, .blocks = blocks, .is_transposed = true};
  };
  return {
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .defaults = changed({}, [](T& model) { model.activation = Activation::gelu_tanh; }),
      .keys = joined_keys(
          {common_keys(),
           {{"n_layer", &T::num_layers, {.most = kMostLayers, .alias = "num_hidden_layers"}},
            {"n_embd", &T::hidden_size, {.alias = "hidden_size"}},
            {"n_head", &T::num_attention_heads, {.alias = "num_attention_heads"}},
            gpt2_head_dim(),
            gpt2_mlp_width(),
            {"n_positions",
             &T::max_position_embeddings,
             {.most = kMaxSize, .alias = "max_position_embeddings"}},
            {"layer_norm_epsilon", &T::norm_epsilon, kPositive},
            {"activation_function", &T::activation},
            gpt2_scale(),
            {"resid_pdrop", &T::hidden_dropout, kHiddenDropout},
            embedding_dropout("embd_pdrop", "resid_pdrop", 0.1),
            {"attn_pdrop", &T::attention_dropout, kAttentionDropout}}}),
      .tensors = joined_tensors(
          {{{"embedding.word_embeddings.weight", "transformer.wte.weight"},
            {"embedding.position_embeddings.weight", "transformer.wpe.weight"},
            {"decoder.final_layernorm.{w}", "transformer.ln_f.{w}"},
            {"output_layer.weight", "lm_head.weight"}},
           in_layers({{"self_attention.linear_qkv.layer_norm_{w}", "ln_1.{w}"},
                      conv1d("self_attention.linear_qkv.{w}", "attn.c_attn.{w}", kQueryKeyValue),
                      conv1d("self_attention.linear_proj.{w}", "attn.c_proj.{w}"),
                      {"mlp.linear_fc1.layer_norm_{w}", "ln_2.{w}"},
                      conv1d("mlp.linear_fc1.{w}", "mlp.c_fc.{w}"),
                      conv1d("mlp.linear_fc2.{w}", "mlp.c_proj.{w}")},
                     "transformer.h.{i}.")}),
      .prefix = "transformer.",
      .buffers = {".attn.bias", ".attn.masked_bias"}};
}

HfFamily llama() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .defaults = llama_defaults(),
          .keys = llama_keys({head_dim(/*is_always_written=*/true), equal_biases()}),
          .tensors = joined_tensors({decoder_tensors(), mlp_tensors()}),
          .needs_even_heads = true};
}

HfFamily qwen2() {
  return {.model_type = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .defaults = changed(grouped_defaults(32), [](T& model) { model.add_qkv_bias = true; }),
          .keys = llama_keys({sliding_window(Windows::from_layer)}),
          .tensors = joined_tensors({decoder_tensors(), mlp_tensors()})};
}

HfFamily qwen3() {
  return {.model_type = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .defaults = changed(grouped_defaults(32),
                              [](T& model) {
                                model.kv_channels = 128;
                                model.qk_layernorm = true;
                              }),
          .keys = llama_keys({head_dim(/*is_always_written=*/true), always_false("attention_bias"),
                              sliding_window(Windows::from_layer)}),
          .tensors = joined_tensors({decoder_tensors(), query_key_norm_tensors(), mlp_tensors()})};
}

HfFamily mistral() {
  return {.model_type = "mistral",
          .architecture = "MistralForCausalLM",
          .defaults = grouped_defaults(8),
          .keys = llama_keys(
              {head_dim(/*is_always_written=*/true), sliding_window(Windows::every_layer)}),
          .tensors = joined_tensors({decoder_tensors(), mlp_tensors()})};
}

HfFamily mixtral() {
  const std::string expert = "block_sparse_moe.experts.{e}.";
  return {.model_type = "mixtral",
          .architecture = "MixtralForCausalLM",
          .defaults = changed(with_experts(grouped_defaults(8, /*window=*/0), 8, 2),
                              [](T& model) {
                                model.norm_epsilon = 1e-5;
                                model.rotary_base = 1e6;
                                model.moe.router_pre_softmax = false;
                              }),
          .keys = llama_keys({head_dim(/*is_always_written=*/true),
                              sliding_window(Windows::every_layer),
                              number_of_experts("num_local_experts", "num_experts"),
                              experts_per_token(), expert_width(), aux_loss(), router_jitter()}),
          .tensors = joined_tensors(
              {decoder_tensors(),
               in_layers({{"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
                          {"mlp.router.weight", "block_sparse_moe.gate.weight"},
                          stacked("mlp.router.weight", "mlp.gate.weight"),
                          {"mlp.experts.linear_fc1.weight", expert + "w1.weight", kGate},
                          {"mlp.experts.linear_fc1.weight", expert + "w3.weight", kUp},
                          stacked("mlp.experts.linear_fc1.weight", "mlp.experts.gate_up_proj"),
                          {"mlp.experts.linear_fc2.weight", expert + "w2.weight"},
                          stacked("mlp.experts.linear_fc2.weight", "mlp.experts.down_proj")})})};
}

HfFamily qwen2_moe() {
  return {
      .model_type = "qwen2_moe",
      .architecture = "Qwen2MoeForCausalLM",
      .defaults = changed(with_experts(grouped_defaults(16), 60, 4, 1408),
                          [](T& model) {
                            model.add_qkv_bias = true;
                            model.moe.shared_expert_intermediate_size = 5632;
                            model.moe.shared_expert_gate = true;
                          }),
      .keys = llama_keys({{"qkv_bias", &T::add_qkv_bias},
                          sliding_window(Windows::alternating),
                          number_of_experts("num_experts"),
                          experts_per_token(),
                          {"moe_intermediate_size", &M::ffn_hidden_size},
                          {"shared_expert_intermediate_size", &M::shared_expert_intermediate_size},
                          expert_layers(),
                          {"norm_topk_prob", &M::router_pre_softmax, kNegated},
                          aux_loss()}),
      .tensors = joined_tensors(
          {decoder_tensors(), mlp_tensors(), expert_tensors(),
           in_layers(
               {{"mlp.shared_experts.linear_fc1.weight", "mlp.shared_expert.gate_proj.weight",
                 kGate},
                {"mlp.shared_experts.linear_fc1.weight", "mlp.shared_expert.up_proj.weight", kUp},
                {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_expert.down_proj.weight"},
                {"mlp.shared_experts.gate_weight", "mlp.shared_expert_gate.weight"}})})};
}

HfFamily qwen3_moe() {
  return {.model_type = "qwen3_moe",
          .architecture = "Qwen3MoeForCausalLM",
          .defaults = changed(with_experts(grouped_defaults(4), 128, 8, 768),
                              [](T& model) { model.qk_layernorm = true; }),
          .keys = llama_keys({head_dim(/*is_always_written=*/true),
                              always_false("attention_bias"),
                              sliding_window(Windows::if_used),
                              number_of_experts("num_experts", "num_local_experts"),
                              experts_per_token(),
                              {"moe_intermediate_size", &M::ffn_hidden_size},
                              expert_layers(),
                              {"norm_topk_prob", &M::router_pre_softmax, kNegated},
                              aux_loss()}),
          .tensors = joined_tensors(
              {decoder_tensors(), query_key_norm_tensors(), mlp_tensors(), expert_tensors()})};
}

HfFamily olmoe() {
  return {
      .model_type = "olmoe",
      .architecture = "OlmoeForCausalLM",
      .defaults = changed(with_experts(llama_defaults(), 64, 8),
                          [](T& model) {
                            model.norm_epsilon = 1e-5;
                            model.qk_layernorm = true;
                            model.qk_layernorm_scope = QkNormScope::all_heads;
                            model.moe.aux_loss_coeff = {0.01};
                          }),
      .keys = llama_keys({always_false("attention_bias"),
                          {"clip_qkv", &T::clip_qkv, kPositive},
                          number_of_experts("num_experts", "num_local_experts"),
                          experts_per_token(),
                          expert_width(),
                          {"norm_topk_prob", &M::router_pre_softmax, kNegated},
                          aux_loss()}),
      .tensors = joined_tensors({decoder_tensors(), query_key_norm_tensors(), expert_tensors()})};
}

HfFamily starcoder2() {
  return {.model_type = "starcoder2",
          .architecture = "Starcoder2ForCausalLM",
          .defaults = changed(decoder_defaults(),
                              [](T& model) {
                                model.num_query_groups = 2;
                                model.activation = Activation::gelu_tanh;
                                model.init_method_std = 0.018042;
                              }),
          .keys = joined_keys({decoder_keys(),
                               {{"norm_epsilon", &T::norm_epsilon, kPositive},
                                {"use_bias", &T::add_bias_linear},
                                {"residual_dropout", &T::hidden_dropout, kHiddenDropout},
                                embedding_dropout("embedding_dropout", "residual_dropout", 0),
                                sliding_window(Windows::every_layer)}}),
          .tensors = joined_tensors(
              {decoder_tensors(),
               {{"decoder.final_layernorm.bias", "model.norm.bias"}},
               in_layers({{"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"},
                          {"mlp.linear_fc1.layer_norm_{w}", "post_attention_layernorm.{w}"},
                          {"mlp.linear_fc1.{w}", "mlp.c_fc.{w}"},
                          {"mlp.linear_fc2.{w}", "mlp.c_proj.{w}"}})})};
}

}  // namespace

const HfFamilies& hf_families() {
  static const HfFamilies families{gpt2(),    llama(),     qwen2(),     qwen3(), mistral(),
                                   mixtral(), qwen2_moe(), qwen3_moe(), olmoe(), starcoder2()};
  return families;
}

std::span<const std::string_view> hf_model_types() {
  static const std::vector<std::string_view> types = [] {
    std::vector<std::string_view> names;
    for (const HfFamily& family : hf_families()) names.push_back(family.model_type);
    return names;
  }();
  return types;
}

const HfFamily* find_hf_family(const HfFamilies& families, std::string_view model_type) {
  const auto found = std::ranges::find(families, model_type, &HfFamily::model_type);
  return found == families.end() ? nullptr : &*found;
}

KeyRows joined_keys(std::initializer_list<KeyRows> lists) {
  KeyRows joined;
  for (const KeyRows& rows : lists) {
    for (const KeyRow& row : rows) {
      const auto same = std::ranges::find(joined, row.key, &KeyRow::key);
      if (row.key.empty() || same == joined.end())
        joined.push_back(row);
      else
        *same = row;
    }
  }
  return joined;
}

TensorRows joined_tensors(std::initializer_list<TensorRows> lists) {
  TensorRows joined;
  for (const TensorRows& rows : lists) std::ranges::copy(rows, std::back_inserter(joined));
  return joined;
}

TensorRows in_layers(TensorRows rows, const std::string& prefix) {
  for (TensorRow& row : rows) {
    row.ours = "decoder.layers.{i}." + row.ours;
    row.theirs = prefix + row.theirs;
  }
  return rows;
}

}  // namespace megatron
