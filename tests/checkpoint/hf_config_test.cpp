#include "megatron/models/hf/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

Json llama(const Json& changes = Json::object()) {
  Json json = {{"model_type", "llama"},    {"vocab_size", 128},
               {"hidden_size", 64},        {"intermediate_size", 112},
               {"num_hidden_layers", 3},   {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
               {"rms_norm_eps", 1e-5},     {"rope_theta", 500000.0},
               {"hidden_act", "silu"},     {"tie_word_embeddings", false}};
  json.merge_patch(changes);
  return json;
}

/// The keys that DeepSeek's configuration classes have besides those with a default.
Json deepseek(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = llama({{"model_type", model_type},
                     {"num_key_value_heads", 4},
                     {"num_experts_per_tok", 4},
                     {"first_k_dense_replace", 1}});
  json.merge_patch(changes);
  return json;
}

Json gpt2(const Json& changes = Json::object()) {
  Json json = {{"model_type", "gpt2"}, {"vocab_size", 128}, {"n_embd", 64},
               {"n_head", 4},          {"n_layer", 2},      {"n_positions", 32}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

TEST(HfConfig, ReadsLlamaOfEitherAge) {
  const TransformerConfig model = model_of(llama());
  EXPECT_EQ(model.num_layers, 3);
  EXPECT_EQ(model.ffn_hidden_size, 112);
  EXPECT_EQ(model.query_groups(), 2);
  EXPECT_EQ(model.kv_channels, 16);
  EXPECT_EQ(model.normalization, Normalization::RMSNorm);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.rotary_base, 500000.0);
  EXPECT_TRUE(model.gated_linear_unit && model.activation == Activation::silu);
  EXPECT_FALSE(model.add_bias_linear || model.add_qkv_bias);
  EXPECT_TRUE(model.untie_embeddings_and_output_weights);

  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  Json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  Json newer = llama({{"rope_theta", nullptr}});
  newer["rope_parameters"] = parameters;
  Json older = llama();
  older["rope_scaling"] = scaling;
  Json oldest = older;
  oldest["rope_scaling"].erase("rope_type");
  oldest["rope_scaling"]["type"] = "llama3";
  for (const Json& json : {newer, older, oldest}) {
    const TransformerConfig scaled = model_of(json);
    EXPECT_EQ(scaled.rope_scaling_type, RopeScaling::llama3);
    EXPECT_EQ(scaled.rope_scaling_factor, 8.0);
    EXPECT_EQ(scaled.rope_original_max_position_embeddings, 64);
    EXPECT_TRUE(forward_differences(model_of(newer), scaled).empty());
  }
}

// The expected values are the defaults of the configuration classes in transformers 5.
TEST(HfConfig, TakesTheFamilysDefaults) {
  Json bare = llama();
  for (const char* key :
       {"rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings", "num_key_value_heads"})
    bare.erase(key);
  EXPECT_EQ(model_of(bare).norm_epsilon, 1e-6);
  EXPECT_EQ(model_of(bare).rotary_base, 10000.0);
  EXPECT_EQ(model_of(bare).query_groups(), 4);
  bare["model_type"] = "mistral";
  bare["num_attention_heads"] = 16;
  EXPECT_EQ(model_of(bare).query_groups(), 8);
  EXPECT_EQ(model_of(bare).window_size->at(0), 4095);
  bare["sliding_window"] = nullptr;
  EXPECT_FALSE(model_of(bare).window_size.has_value());
  bare["model_type"] = "qwen3";
  bare["num_key_value_heads"] = nullptr;
  EXPECT_EQ(model_of(bare).kv_channels, 128);
  EXPECT_TRUE(model_of(bare).qk_layernorm);
  EXPECT_EQ(model_of(bare).query_groups(), 16);
}

// The defaults are those of Starcoder2Config in transformers 5.
TEST(HfConfig, ReadsStarcoder2) {
  Json json = llama({{"model_type", "starcoder2"}, {"residual_dropout", 0.25}});
  for (const char* key :
       {"rms_norm_eps", "num_key_value_heads", "hidden_act", "tie_word_embeddings"})
    json.erase(key);
  const HfConfig config = parse_hf_config(json, "c");
  EXPECT_EQ(config.model.normalization, Normalization::LayerNorm);
  EXPECT_EQ(config.model.norm_epsilon, 1e-5);
  EXPECT_EQ(config.model.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.model.query_groups(), 2);
  EXPECT_EQ(config.model.init_method_std, 0.018042);
  EXPECT_EQ(config.model.hidden_dropout, 0.25);
  EXPECT_TRUE(config.model.add_bias_linear);
  EXPECT_FALSE(config.model.gated_linear_unit || config.model.window_size ||
               config.model.untie_embeddings_and_output_weights);
  ASSERT_EQ(config.notes.size(), 1u);  // the embedding has no dropout
  json["use_bias"] = false;
  json["sliding_window"] = 8;
  const TransformerConfig changed = model_of(json);
  EXPECT_FALSE(changed.add_bias_linear);
  EXPECT_EQ(changed.window_size->at(0), 7);
  const Json fresh = make_hf_config(changed, "starcoder2", "float32", nullptr);
  EXPECT_TRUE(forward_differences(changed, model_of(fresh)).empty()) << fresh;
  EXPECT_EQ(fresh.at("embedding_dropout"), 0.25);
  EXPECT_FALSE(fresh.contains("head_dim"));
}

// The defaults are those of DeepseekV2Config and DeepseekV3Config in transformers 5.
TEST(HfConfig, ReadsDeepseek) {
  Json lite = deepseek("deepseek_v2");
  lite["q_lora_rank"] = nullptr;
  const TransformerConfig v2 = model_of(lite);
  EXPECT_TRUE(v2.multi_latent_attention && v2.qk_layernorm);
  EXPECT_EQ(v2.q_lora_rank, 0);
  EXPECT_EQ(v2.kv_lora_rank, 512);
  EXPECT_EQ(v2.latent_norm_epsilon, 1e-6);
  EXPECT_EQ(v2.moe.num_experts, 64);
  EXPECT_EQ(v2.moe.shared_expert_intermediate_size, 2 * 1407);
  EXPECT_TRUE(v2.moe.router_pre_softmax);
  EXPECT_EQ(expert_layers(v2), (std::vector<std::int64_t>{0, 1, 1}));
  const TransformerConfig limited = model_of(deepseek(
      "deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 8}, {"topk_group", 3}}));
  EXPECT_EQ(limited.q_lora_rank, 1536);
  EXPECT_EQ(limited.moe.router_num_groups, 8);
  EXPECT_EQ(limited.moe.router_group_topk, 3);
  EXPECT_EQ(limited.moe.router_group_score_topk, 1);
  const TransformerConfig v3 =
      model_of(deepseek("deepseek_v3", {{"rope_scaling",
                                         {{"type", "yarn"},
                                          {"factor", 40},
                                          {"original_max_position_embeddings", 64},
                                          {"beta_fast", 32},
                                          {"beta_slow", 1},
                                          {"mscale", 1.0},
                                          {"mscale_all_dim", 1.0}}}}));
  EXPECT_EQ(v3.moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(v3.moe.router_enable_expert_bias);
  EXPECT_EQ(v3.moe.router_topk_scaling_factor, 2.5);
  EXPECT_EQ(v3.moe.router_num_groups, 8);
  EXPECT_EQ(v3.moe.router_group_topk, 4);
  EXPECT_EQ(v3.yarn_mscale_all_dim, 1);
  const TransformerConfig depths =
      model_of(deepseek("deepseek_v3", {{"num_nextn_predict_layers", 2}}));
  EXPECT_EQ(v3.mtp_num_layers, 0);
  EXPECT_EQ(depths.mtp_num_layers, 2);
  EXPECT_EQ(make_hf_config(depths, "deepseek_v3", "float32", nullptr)["num_nextn_predict_layers"],
            2);
  EXPECT_FALSE(
      make_hf_config(v3, "deepseek_v3", "float32", nullptr).contains("num_nextn_predict_layers"));
  for (const TransformerConfig& model : {v2, limited, v3, depths}) {
    const std::string type = model.moe.router_enable_expert_bias ? "deepseek_v3" : "deepseek_v2";
    const Json fresh = make_hf_config(model, type, "float32", nullptr);
    EXPECT_TRUE(forward_differences(model, model_of(fresh)).empty()) << fresh;
    EXPECT_TRUE(forward_differences(model, architecture_from_json(architecture_to_json(model), "m"))
                    .empty());
  }
}

TEST(HfConfig, NullIsNoneInAnOptionalNumber) {
  Json json = deepseek("deepseek_v3");
  json["routed_scaling_factor"] = nullptr;
  EXPECT_FALSE(model_of(json).moe.router_topk_scaling_factor.has_value());
}

TEST(KeyRows, WriteTheFirstOfAList) {
  TransformerConfig model;
  model.moe.aux_loss_coeff = {0.25, 0.5};
  Json json = {{"", "other"}};
  write_keys({{"coefficient", &MoeConfig::aux_loss_coeff}}, model, json);
  EXPECT_EQ(json, (Json{{"", "other"}, {"coefficient", 0.25}}));
}

TEST(HfConfig, RefusesWhatDeepseekModelsLack) {
  for (const auto& [changes, word] : std::vector<std::pair<Json, std::string>>{
           {{{"num_key_value_heads", 2}}, "num_key_value_heads"},
           {{{"rope_interleave", false}}, "rope_interleave"},
           {{{"norm_topk_prob", false}}, "norm_topk_prob"},
           {{{"attention_bias", true}}, "attention_bias"},
           {{{"topk_method", "greedy"}}, "topk_method"},
           {{{"scoring_func", "softmax"}}, "scoring_func"},
           {{{"n_group", 7}}, "n_group"},
           {{{"num_experts_per_tok", 1}}, "num_experts_per_tok"},
           {{{"moe_layer_freq", 2}}, "moe_layer_freq"},
           {{{"first_k_dense_replace", 3}}, "first_k_dense_replace"}})
    expect_user_error([&] { model_of(deepseek("deepseek_v3", changes)); }, {"config.json", word},
                      word);
}

TEST(HfConfig, ReadsGpt2) {
  const HfConfig config = parse_hf_config(gpt2({{"resid_pdrop", 0.2},
                                                {"embd_pdrop", 0.2},
                                                {"n_inner", 96},
                                                {"scale_attn_weights", false}}),
                                          "c");
  EXPECT_EQ(config.model.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.model.hidden_dropout, 0.2);
  EXPECT_EQ(config.model.ffn_hidden_size, 96);
  EXPECT_EQ(config.model.softmax_scale, 1.0);
  EXPECT_TRUE(config.model.add_bias_linear);
  EXPECT_FALSE(config.model.untie_embeddings_and_output_weights);
  EXPECT_EQ(config.given_training_fields.at("hidden_dropout"), "config.json");
  EXPECT_EQ(config.given_training_fields.at("attention_dropout"), "the family's default");
  EXPECT_EQ(config.model.attention_dropout, 0.1);  // GPT2Config's
  EXPECT_TRUE(config.notes.empty());
  EXPECT_EQ(parse_hf_config(gpt2({{"embd_pdrop", 0.0}}), "c").notes.size(), 1u);
}

// No configuration class but those of the families here has a dropout of the residual branches; all
// others have 0 for attention_dropout.
Json bert(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type},     {"vocab_size", 128},      {"hidden_size", 64},
               {"intermediate_size", 112},     {"num_hidden_layers", 3}, {"num_attention_heads", 4},
               {"max_position_embeddings", 64}};
  json.merge_patch(changes);
  return json;
}

TEST(HfConfig, ReadsEncoders) {
  const TransformerConfig model = model_of(bert("bert"));
  EXPECT_EQ(model.norm_placement, NormPlacement::post);
  EXPECT_TRUE(model.embedding_norm && model.bert_binary_head);
  EXPECT_EQ(model.token_types(), 2);
  EXPECT_EQ(model.norm_epsilon, 1e-12);
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.1);
  EXPECT_FALSE(model.untie_embeddings_and_output_weights);
  const auto has_binary_head = [](const char* name) {
    return model_of(bert("bert", {{"architectures", Json::array({name})}})).bert_binary_head;
  };
  EXPECT_FALSE(has_binary_head("BertForMaskedLM"));
  EXPECT_TRUE(has_binary_head("BertForPreTraining"));
  EXPECT_FALSE(
      model_of(bert("bert", {{"architectures", Json::array({"BertModel"})}})).bert_lm_head);

  const auto num_classes = [](const char* name, const Json& changes) {
    Json json = bert("bert", changes);
    json["architectures"] = Json::array({name});
    return model_of(json).num_classes;
  };
  const Json labels{{"id2label", {{"0", "no"}, {"1", "maybe"}, {"2", "yes"}}}};
  EXPECT_EQ(num_classes("BertForSequenceClassification", labels), 3);
  EXPECT_EQ(num_classes("BertForSequenceClassification", Json::object()), 2);
  EXPECT_EQ(num_classes("BertForMultipleChoice", labels), 1);
  EXPECT_EQ(num_classes("BertForPreTraining", labels), 0);
  expect_user_error(
      [&] {
        num_classes("BertForSequenceClassification", {{"id2label", {{"0", "score"}}}});
      },
      {"id2label", "two classes"});

  const TransformerConfig megatron = model_of(bert("megatron-bert"));
  EXPECT_EQ(megatron.norm_placement, NormPlacement::pre);
  EXPECT_FALSE(megatron.embedding_norm);

  const TransformerConfig roberta =
      model_of(bert("roberta", {{"type_vocab_size", 1}, {"pad_token_id", 3}}));
  EXPECT_EQ(roberta.position_offset, 4);
  EXPECT_EQ(roberta.token_types(), 1);
  EXPECT_FALSE(roberta.bert_binary_head);
  EXPECT_EQ(model_of(bert("roberta")).position_offset, 2);

  expect_user_error(
      [] {
        model_of(bert("bert", {{"type_vocab_size", 0}}));
      },
      {"type_vocab_size", "--num-tokentypes"});
  expect_user_error([] { model_of(bert("bert", {{"hidden_act", "relu"}})); }, {"hidden_act"});
  const Json choices{{"architectures", Json::array({"RobertaForMultipleChoice"})}};
  expect_user_error([&] { model_of(bert("roberta", choices)); }, {"architectures", "BERT alone"});
  expect_user_error([] { model_of(bert("modernbert")); }, {"first layer without a norm"});
}

TEST(HfConfig, OtherFamiliesHaveNoHiddenDropout) {
  for (const HfFamily& known : hf_families()) {
    const std::string& family = known.model_type;
    if (std::set<std::string>{"gpt2", "starcoder2", "phi3", "seed_oss", "gpt_neox", "stablelm",
                              "phi"}
            .contains(family) ||
        known.network != "gpt")
      continue;
    Json json = family.starts_with("deepseek") || family == "kimi_k2"
                    ? deepseek(family)
                    : llama({{"model_type", family},
                             {"moe_intermediate_size", 32},
                             {"num_experts", 8},
                             {"n_routed_experts", 8},
                             {"num_experts_per_tok", 2},
                             {"norm_topk_prob", true}});
    if (family == "llama4_text") json["num_experts_per_tok"] = 1;
    if (family == "ministral3")
      json["rope_parameters"] = {{"llama_4_scaling_beta", 0.1},
                                 {"original_max_position_embeddings", 64}};
    const HfConfig config = parse_hf_config(json, "c");
    EXPECT_EQ(config.model.hidden_dropout, 0) << family;
    EXPECT_EQ(config.model.attention_dropout, 0) << family;
    EXPECT_EQ(config.given_training_fields.at("hidden_dropout"), kFamilyHasNone);
  }
}

// The fields that transformers 5 calls unrecognized, by rope_type.
TEST(HfConfig, NotesUnknownRotaryFields) {
  const auto notes = [](const Json& rope) {
    return parse_hf_config(llama({{"rope_scaling", rope}}), "c").notes;
  };
  Json rope = {{"rope_type", "llama3"},   {"type", "llama3"},
               {"factor", 8.0},           {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64},
               {"rope_theta", 1e4}};
  EXPECT_TRUE(notes(rope).empty());
  rope["beta_fast"] = 32;
  rope["mscal"] = 1.0;
  ASSERT_EQ(notes(rope).size(), 1u);
  EXPECT_EQ(notes(rope)[0],
            "c: field 'rope_scaling': fields that rope_type 'llama3' does not have are ignored: "
            "beta_fast, mscal");
  EXPECT_EQ(notes({{"type", "linear"}, {"factor", 2.0}}).size(), 0u);
  EXPECT_EQ(notes({{"type", "default"}, {"factor", 2.0}}).size(), 1u);
  EXPECT_TRUE(notes({{"type", "yarn"},
                     {"factor", 2.0},
                     {"original_max_position_embeddings", 64},
                     {"attention_factor", 1.1},
                     {"beta_fast", 32},
                     {"beta_slow", 1},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"truncate", true}})
                  .empty());
}

TEST(HfConfig, ReadsSlidingWindows) {
  const TransformerConfig mistral =
      model_of(llama({{"model_type", "mistral"}, {"sliding_window", 7}}));
  EXPECT_EQ(*mistral.window_size, (std::array<std::int64_t, 2>{6, 0}));
  const Json qwen =
      llama({{"model_type", "qwen2"}, {"sliding_window", 7}, {"max_window_layers", 1}});
  EXPECT_FALSE(model_of(qwen).window_size.has_value());
  Json enabled = qwen;
  enabled["use_sliding_window"] = true;
  EXPECT_EQ(windowed_layers(model_of(enabled)), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_TRUE(model_of(enabled).add_qkv_bias);
  enabled["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(windowed_layers(model_of(enabled)), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(HfConfig, NamesTheFieldThatIsNotSupported) {
  struct Case {
    Json json;
    std::vector<std::string> words;
  };
  Json without_layers = llama();
  without_layers.erase("num_hidden_layers");
  const std::vector<Case> cases{
      {llama({{"model_type", "mamba"}}), {"model_type", "mamba"}},
      {llama({{"model_type", "deepseek_v32"}, {"quantization_config", {{"quant_method", "fp8"}}}}),
       {"model_type 'deepseek_v32': needs sparse attention with an indexer (DSA)"}},
      {llama({{"model_type", "qwen3_5"}, {"text_config", {{"model_type", "qwen3_5_text"}}}}),
       {"'qwen3_5': needs vision", "of model_type 'qwen3_5_text'"}},
      {llama({{"model_type", "other"}, {"text_config", {{"model_type", "kimi_linear"}}}}),
       {"'kimi_linear': needs delta nets with a decay per channel (KDA)"}},
      {llama({{"model_type", 3}}), {"model_type"}},
      {Json::array(), {"config.json"}},
      {without_layers, {"num_hidden_layers", "missing"}},
      {llama({{"num_hidden_layers", "3"}}), {"num_hidden_layers", "integer"}},
      {llama({{"num_hidden_layers", 0}}), {"num_hidden_layers", "1 and 10000"}},
      {llama({{"num_hidden_layers", 1e12}}), {"num_hidden_layers"}},
      {llama({{"model_type", "qwen3"}, {"num_hidden_layers", std::int64_t{1} << 60}}),
       {"num_hidden_layers"}},
      {gpt2({{"n_embd", std::int64_t{1} << 62}}), {"n_embd"}},
      {gpt2({{"n_inner", 0}}), {"n_inner"}},
      {llama({{"intermediate_size", 0}}), {"intermediate_size"}},
      {llama({{"max_position_embeddings", std::int64_t{1} << 40}}), {"max_position_embeddings"}},
      {llama({{"vocab_size", 0}}), {"vocab_size"}},
      {llama({{"hidden_size", -64}}), {"hidden_size"}},
      {llama({{"hidden_size", 66}}), {"hidden_size", "multiple"}},
      {llama({{"num_key_value_heads", 3}}), {"num_key_value_heads", "3", "a multiple of it"}},
      {llama({{"head_dim", 15}}), {"head_dim", "15", "even"}},
      {llama({{"hidden_size", 60}}), {"hidden_size", "60", "even size, here 15"}},
      {llama({{"model_type", "qwen3"}, {"hidden_size", 66}, {"head_dim", 16}}),
       {"hidden_size", "multiple", "66 and 4"}},
      {llama({{"rope_scaling",
               {{"rope_type", "llama3"},
                {"factor", 8.0},
                {"low_freq_factor", 4.0},
                {"high_freq_factor", 3.5}}}}),
       {"rope_scaling", "high_freq_factor", "at least low_freq_factor"}},
      {llama({{"hidden_act", "mish"}}), {"hidden_act", "mish"}},
      {llama({{"rms_norm_eps", 0}}), {"rms_norm_eps"}},
      {llama({{"rope_theta", "x"}}), {"rope_theta"}},
      {llama({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}}),
       {"rope_scaling", "rope_type", "dynamic"}},
      {llama({{"rope_parameters", {{"rope_type", "longrope"}}}}),
       {"rope_parameters", "rope_type", "longrope"}},
      {llama({{"rope_scaling", {{"type", "linear"}}}}), {"rope_scaling", "factor"}},
      {llama({{"rope_scaling", 3}}), {"rope_scaling"}},
      {llama({{"rope_parameters", {{"full_attention", Json::object()}, {"rope_theta", 1.0}}}}),
       {"full_attention", "use one set of rotary parameters for all layers"}},
      {llama({{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "set it to 1"}},
      {llama({{"attention_bias", true}}), {"attention_bias"}},
      {llama({{"model_type", "qwen3"}, {"attention_bias", true}}),
       {"attention_bias", "set it to false"}},
      {llama({{"quantization_config", {{"bits", 4}}}}), {"quantization_config"}},
      {llama({{"attention_dropout", 1.5}}), {"attention_dropout", "below 1"}},
      {gpt2({{"resid_pdrop", -0.5}}), {"resid_pdrop"}},
      {llama({{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}}), {"layer_types"}},
      {llama({{"model_type", "qwen2"}, {"layer_types", {"full_attention", "x", "x"}}}),
       {"layer_types", "use full_attention or sliding_attention"}},
      {llama({{"model_type", "mistral"}, {"sliding_window", 0}}), {"sliding_window"}},
      {gpt2({{"activation_function", "tanh"}}), {"activation_function", "tanh"}},
      {gpt2({{"add_cross_attention", true}}), {"add_cross_attention", "set it to false"}},
      {gpt2({{"scale_attn_by_inverse_layer_idx", true}}), {"scale_attn_by_inverse_layer_idx"}},
      {gpt2({{"n_positions", 0}}), {"n_positions"}},
      {gpt2({{"n_head", 0}}), {"n_head"}},
  };
  for (const Case& broken : cases) {
    std::vector<std::string> words = broken.words;
    words.push_back("config.json");
    expect_user_error([&] { model_of(broken.json); }, words, broken.json.dump());
    try {
      model_of(broken.json);
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("--"), std::string::npos) << error.what();
    }
  }
}

TEST(HfConfig, WritesWhatItReads) {
  const Json yarn = {{"rope_type", "yarn"},
                     {"rope_theta", 1e6},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 64},
                     {"attention_factor", 1.1}};
  const std::vector<Json> configs{
      llama(),
      llama({{"attention_bias", true},
             {"mlp_bias", true},
             {"tie_word_embeddings", true},
             {"head_dim", 24}}),
      llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      llama({{"model_type", "qwen2"},
             {"use_sliding_window", true},
             {"sliding_window", 9},
             {"max_window_layers", 2}}),
      llama({{"model_type", "qwen3"}, {"head_dim", 32}, {"rope_parameters", yarn}}),
      llama({{"model_type", "mistral"}, {"sliding_window", 9}}),
      gpt2(),
      gpt2({{"n_inner", 100},
            {"activation_function", "relu"},
            {"tie_word_embeddings", false},
            {"scale_attn_weights", false}}),
      bert("bert"),
      bert("megatron-bert", {{"architectures", Json::array({"MegatronBertForMaskedLM"})}}),
      bert("roberta", {{"type_vocab_size", 1}, {"pad_token_id", 3}}),
      bert("roberta", {{"architectures", Json::array({"RobertaModel"})}}),
      bert("bert", {{"architectures", Json::array({"BertForMultipleChoice"})}}),
      bert("roberta", {{"architectures", Json::array({"RobertaForSequenceClassification"})},
                       {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}}),
  };
  for (const Json& json : configs) {
    const HfConfig config = parse_hf_config(json, "c");
    const Json fresh = make_hf_config(config.model, config.model_type, "bfloat16", nullptr);
    EXPECT_TRUE(forward_differences(config.model, model_of(fresh)).empty()) << fresh;
    EXPECT_EQ(fresh.at("dtype"), "bfloat16");
  }
}

TEST(HfConfig, KeepsTheKeysOfTheOriginal) {
  const Json original =
      llama({{"torch_dtype", "bfloat16"}, {"my_own_key", {1, 2}}, {"eos_token_id", 2}});
  TransformerConfig model = model_of(original);
  model.hidden_dropout = 0.1;  // of the run; no field of the family says so
  Json same = make_hf_config(model, "llama", "float32", &original);
  EXPECT_EQ(same.at("torch_dtype"), "float32");
  same["torch_dtype"] = "bfloat16";
  EXPECT_EQ(same, original);
  model.rotary_base = 20000;
  const Json changed = make_hf_config(model, "llama", "float32", &original);
  EXPECT_EQ(changed.at("my_own_key"), original.at("my_own_key"));
  EXPECT_EQ(changed.at("rope_theta"), 20000.0);
  EXPECT_EQ(changed.at("rope_parameters").at("rope_theta"), 20000.0);
}

TEST(HfConfig, RefusesWhatAFamilyCannotExpress) {
  TransformerConfig model = model_of(llama());
  model.window_size = {{8, 0}};
  expect_user_error([&] { make_hf_config(model, "llama", "float32", nullptr); },
                    {"llama", "--window-size = "});
  model.apply_layernorm_1p = true;
  expect_user_error([&] { make_hf_config(model, "mistral", "float32", nullptr); },
                    {"mistral", "--apply-layernorm-1p = true"});
  expect_user_error([&] { make_hf_config(model, "gpt2", "float32", nullptr); },
                    {"gpt2", "--position-embedding-type"});
}

// DeepseekV3RMSNorm of the latents has its own epsilon, 1e-6, that no key sets.
TEST(HfConfig, NamesTheFlagThatSetsAMember) {
  TransformerConfig model = model_of(deepseek("deepseek_v3"));
  model.latent_norm_epsilon.reset();
  model.norm_epsilon = 1e-5;
  expect_user_error([&] { make_hf_config(model, "deepseek_v3", "float32", nullptr); },
                    {"--norm-epsilon of the norms of latents = 1e-05 (deepseek_v3: 1e-06)",
                     "train with --norm-epsilon 1e-06, or keep it in --format megatron"});
}

TEST(HfConfig, SurvivesRandomDamage) {
  std::mt19937 random(3);
  const std::string texts[] = {
      llama({{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}}).dump(), gpt2().dump(),
      llama({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"layer_types", nullptr}})
          .dump(),
      llama({{"model_type", "gemma3_text"},
             {"sliding_window_pattern", 2},
             {"final_logit_softcapping", 3.0},
             {"rope_parameters", {{"sliding_attention", {{"rope_theta", 100.0}}}}}})
          .dump()};
  for (int round = 0; round < 2000; ++round) {
    try {
      parse_hf_config(parse_json(mutate(texts[round % 4], random), "c"), "c");
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
}

/// The members of TransformerConfig that a checkpoint must store: all but the pattern from which
/// window_layers is derived.
const std::set<std::string> kMembers{"num_layers",
                                     "hidden_size",
                                     "num_attention_heads",
                                     "ffn_hidden_size",
                                     "kv_channels",
                                     "group_query_attention",
                                     "num_query_groups",
                                     "max_position_embeddings",
                                     "vocab_size",
                                     "untie_embeddings_and_output_weights",
                                     "normalization",
                                     "norm_placement",
                                     "norm_epsilon",
                                     "add_norm_bias",
                                     "qk_layernorm_scope",
                                     "clip_qkv",
                                     "activation_func_clamp_value",
                                     "glu_linear_offset",
                                     "apply_layernorm_1p",
                                     "apply_residual_connection_post_layernorm",
                                     "qk_layernorm",
                                     "activation",
                                     "gated_linear_unit",
                                     "add_bias_linear",
                                     "add_qkv_bias",
                                     "window_size",
                                     "window_layers",
                                     "softmax_scale",
                                     "qk_layernorm_placement",
                                     "qk_l2_norm",
                                     "attention_output_gate",
                                     "softmax_type",
                                     "attention_chunk_size",
                                     "nope_layers",
                                     "rotary_base_local",
                                     "attn_temperature_scale",
                                     "attn_temperature_floor",
                                     "attn_temperature_all_layers",
                                     "attn_logit_softcapping",
                                     "final_logit_softcapping",
                                     "logit_scale",
                                     "add_output_bias",
                                     "embedding_multiplier",
                                     "residual_multiplier",
                                     "parallel_residual",
                                     "share_block_norm",
                                     "position_embedding_type",
                                     "rotary_base",
                                     "rotary_percent",
                                     "rotary_interleaved",
                                     "rope_scaling_type",
                                     "rope_scaling_factor",
                                     "rope_low_freq_factor",
                                     "rope_high_freq_factor",
                                     "rope_original_max_position_embeddings",
                                     "yarn_beta_fast",
                                     "yarn_beta_slow",
                                     "yarn_mscale",
                                     "yarn_mscale_all_dim",
                                     "yarn_correction_range_round_to_int",
                                     "yarn_attention_factor",
                                     "hidden_dropout",
                                     "attention_dropout",
                                     "init_method_std",
                                     "embedding_init_method_std",
                                     "init_method_xavier_uniform",
                                     "fp32_residual_connection",
                                     "attention_softmax_in_fp32",
                                     "apply_query_key_layer_scaling"};

TEST(Architecture, StoresEveryMember) {
  TransformerConfig model = model_of(llama({{"model_type", "qwen2"},
                                            {"use_sliding_window", true},
                                            {"sliding_window", 9},
                                            {"max_window_layers", 2}}));
  model.embedding_init_method_std = 0.5;
  model.yarn_attention_factor = 1.0 / 3;
  model.norm_epsilon = 3e-4;
  const Json json = architecture_to_json(model);
  const TransformerConfig back = architecture_from_json(json, "m");
  EXPECT_EQ(architecture_to_json(back), json);
  EXPECT_EQ(back.yarn_attention_factor, 1.0 / 3);
  EXPECT_EQ(back.norm_epsilon, 3e-4);
  std::set<std::string> stored;
  for (const auto& [name, value] : json.items()) stored.insert(name);
  EXPECT_EQ(stored, kMembers);
  EXPECT_EQ(windowed_layers(back), windowed_layers(model));
  Json unknown = json, missing = json, wrong = json;
  unknown["surprise"] = 1;
  missing.erase("hidden_size");
  wrong["hidden_size"] = "wide";
  expect_user_error([&] { architecture_from_json(unknown, "m"); }, {"m", "surprise"});
  expect_user_error([&] { architecture_from_json(missing, "m"); }, {"m", "hidden_size"});
  expect_user_error([&] { architecture_from_json(wrong, "m"); }, {"m", "hidden_size"});
}

}  // namespace
}  // namespace megatron
