// config.json of the families with experts. Defaults are those of the configuration classes in
// transformers 5.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "megatron/base/json.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {
namespace {

Json with_experts(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type},   {"vocab_size", 128},
               {"hidden_size", 64},          {"intermediate_size", 112},
               {"num_hidden_layers", 5},     {"num_attention_heads", 4},
               {"num_key_value_heads", 2},   {"max_position_embeddings", 256},
               {"num_experts_per_tok", 3},   {"moe_intermediate_size", 40},
               {"norm_topk_prob", true},     {"router_aux_loss_coef", 0.25},
               {"tie_word_embeddings", true}};
  json[model_type == "mixtral" ? "num_local_experts" : "num_experts"] = 6;
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

using Layers = std::vector<std::int64_t>;

TEST(HfMoeConfig, ReadsMixtral) {
  const HfConfig config =
      parse_hf_config(with_experts("mixtral", {{"router_jitter_noise", 0.125}}), "c");
  const MoeConfig& moe = config.model.moe;
  EXPECT_EQ(moe.num_experts, 6);
  EXPECT_EQ(moe.router_topk, 3);
  EXPECT_EQ(moe.ffn_hidden_size, 112);
  EXPECT_EQ(moe.shared_expert_intermediate_size, 0);
  EXPECT_EQ(moe.layer_freq, "1");
  EXPECT_FALSE(moe.router_pre_softmax);
  EXPECT_EQ(moe.router_score_function, RouterScore::softmax);
  EXPECT_EQ(moe.coefficient(LoadBalancing::aux_loss), 0.25);
  EXPECT_EQ(moe.input_jitter_eps, 0.125);
  EXPECT_EQ(config.given_training_fields.at("moe_aux_loss_coeff"), "config.json");
  EXPECT_EQ(config.given_training_fields.at("moe_input_jitter_eps"), "config.json");
  EXPECT_FALSE(config.model.add_qkv_bias || config.model.qk_layernorm);
}

TEST(HfMoeConfig, ReadsQwen) {
  const TransformerConfig second =
      model_of(with_experts("qwen2_moe", {{"shared_expert_intermediate_size", 72}}));
  EXPECT_EQ(second.moe.ffn_hidden_size, 40);
  EXPECT_EQ(second.ffn_hidden_size, 112);
  EXPECT_EQ(second.moe.shared_expert_intermediate_size, 72);
  EXPECT_TRUE(second.moe.shared_expert_gate);
  EXPECT_TRUE(second.add_qkv_bias);
  EXPECT_FALSE(second.moe.router_pre_softmax);
  EXPECT_FALSE(model_of(with_experts("qwen2_moe", {{"qkv_bias", false}})).add_qkv_bias);

  const TransformerConfig third =
      model_of(with_experts("qwen3_moe", {{"norm_topk_prob", false}, {"head_dim", 24}}));
  EXPECT_TRUE(third.qk_layernorm);
  EXPECT_EQ(third.kv_channels, 24);
  EXPECT_EQ(third.moe.shared_expert_intermediate_size, 0);
  EXPECT_FALSE(third.moe.shared_expert_gate);
  EXPECT_TRUE(third.moe.router_pre_softmax);
  EXPECT_FALSE(third.moe.input_jitter_eps.has_value());
}

TEST(HfMoeConfig, ReadsOlmoe) {
  const TransformerConfig model = model_of(with_experts("olmoe", {{"clip_qkv", 8.5}}));
  EXPECT_TRUE(model.qk_layernorm);
  EXPECT_EQ(model.qk_layernorm_scope, QkNormScope::all_heads);
  EXPECT_EQ(model.clip_qkv, 8.5);
  EXPECT_EQ(model.moe.num_experts, 6);
  EXPECT_EQ(model.moe.ffn_hidden_size, 112);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_FALSE(model_of(with_experts("olmoe", {{"clip_qkv", nullptr}})).clip_qkv.has_value());
  for (const Json& bad : {Json{{"clip_qkv", 0}}, Json{{"clip_qkv", -1}}, Json{{"clip_qkv", "8"}},
                          Json{{"attention_bias", true}}})
    expect_user_error([&] { model_of(with_experts("olmoe", bad)); }, {bad.begin().key()});
}

TEST(HfMoeConfig, OlmoeKeepsItsKeysWhenWritten) {
  TransformerConfig model = model_of(with_experts("olmoe", {{"clip_qkv", 8.5}}));
  const Json written = make_hf_config(model, "olmoe", "float32", nullptr);
  EXPECT_EQ(written.at("clip_qkv"), 8.5);
  EXPECT_FALSE(written.contains("head_dim"));
  EXPECT_EQ(written.at("architectures")[0], "OlmoeForCausalLM");
  // No other family has its norms, and it has no others.
  for (const char* family : {"qwen3_moe", "mixtral", "llama"})
    expect_user_error([&] { make_hf_config(model, family, "float32", nullptr); }, {family});
  model.qk_layernorm_scope = QkNormScope::head;
  expect_user_error([&] { make_hf_config(model, "olmoe", "float32", nullptr); },
                    {"--qk-layernorm-scope"});
}

TEST(HfMoeConfig, TakesTheFamilysDefaults) {
  const auto bare = [](const std::string& model_type) {
    Json json = with_experts(model_type);
    for (const char* key :
         {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
          "norm_topk_prob", "router_aux_loss_coef", "num_key_value_heads", "tie_word_embeddings"})
      json.erase(key);
    json["num_attention_heads"] = 16;
    return model_of(json);
  };
  const TransformerConfig mixtral = bare("mixtral"), qwen2 = bare("qwen2_moe"),
                          qwen3 = bare("qwen3_moe"), olmoe = bare("olmoe");
  EXPECT_EQ(olmoe.moe.num_experts, 64);
  EXPECT_EQ(olmoe.moe.router_topk, 8);
  EXPECT_EQ(olmoe.query_groups(), 16);
  EXPECT_EQ(olmoe.rotary_base, 10000);
  EXPECT_TRUE(olmoe.moe.router_pre_softmax);
  EXPECT_FALSE(olmoe.clip_qkv.has_value());
  EXPECT_EQ(olmoe.moe.coefficient(LoadBalancing::aux_loss), 0.01);
  EXPECT_EQ(mixtral.moe.num_experts, 8);
  EXPECT_EQ(mixtral.moe.router_topk, 2);
  EXPECT_EQ(mixtral.query_groups(), 8);
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5);
  EXPECT_EQ(mixtral.rotary_base, 1e6);
  EXPECT_FALSE(mixtral.window_size.has_value());
  EXPECT_FALSE(mixtral.moe.router_pre_softmax);
  EXPECT_FALSE(mixtral.moe.input_jitter_eps.has_value());
  EXPECT_EQ(qwen2.moe.num_experts, 60);
  EXPECT_EQ(qwen2.moe.router_topk, 4);
  EXPECT_EQ(qwen2.moe.ffn_hidden_size, 1408);
  EXPECT_EQ(qwen2.moe.shared_expert_intermediate_size, 5632);
  EXPECT_EQ(qwen2.query_groups(), 16);
  EXPECT_TRUE(qwen2.moe.router_pre_softmax);
  EXPECT_EQ(qwen3.moe.num_experts, 128);
  EXPECT_EQ(qwen3.moe.router_topk, 8);
  EXPECT_EQ(qwen3.moe.ffn_hidden_size, 768);
  EXPECT_EQ(qwen3.query_groups(), 4);
  EXPECT_EQ(qwen3.kv_channels, 4);
  EXPECT_EQ(qwen3.norm_epsilon, 1e-6);
  EXPECT_EQ(qwen3.rotary_base, 10000);
  EXPECT_TRUE(qwen3.moe.router_pre_softmax);
  for (const TransformerConfig* model : {&mixtral, &qwen2, &qwen3}) {
    EXPECT_EQ(model->moe.coefficient(LoadBalancing::aux_loss), 0.001);
    EXPECT_TRUE(expert_layers(*model).empty());
    EXPECT_TRUE(model->untie_embeddings_and_output_weights);
  }
}

// Layer i has experts if (i + 1) % decoder_sparse_step is 0 and mlp_only_layers lacks it.
TEST(HfMoeConfig, ReadsWhichLayersHaveExperts) {
  const auto layers = [](const Json& changes) {
    return expert_layers(model_of(with_experts("qwen3_moe", changes)));
  };
  EXPECT_EQ(layers({{"decoder_sparse_step", 1}, {"mlp_only_layers", Json::array()}}), Layers{});
  EXPECT_EQ(layers({{"decoder_sparse_step", 2}}), (Layers{0, 1, 0, 1, 0}));
  EXPECT_EQ(layers({{"decoder_sparse_step", 3}}), (Layers{0, 0, 1, 0, 0}));
  EXPECT_EQ(layers({{"mlp_only_layers", {0, 4}}}), (Layers{0, 1, 1, 1, 0}));
  EXPECT_EQ(layers({{"mlp_only_layers", {1, 9, -1}}, {"decoder_sparse_step", 2}}),
            (Layers{0, 0, 0, 1, 0}));
}

TEST(HfMoeConfig, ReadsTheSpellingsOfTheNumberOfExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    Json json = with_experts(family);
    json.erase("num_experts");
    json.erase("num_local_experts");
    for (const char* key : {"num_experts", "num_local_experts"}) {
      Json spelled = json;
      spelled[key] = 12;
      EXPECT_EQ(model_of(spelled).moe.num_experts, 12) << family << key;
    }
    json["num_experts"] = 12;
    json["num_local_experts"] = 12;
    EXPECT_EQ(model_of(json).moe.num_experts, 12);
    json["num_local_experts"] = 8;
    expect_user_error([&] { model_of(json); }, {"config.json", "12"}, family);
  }
}

TEST(HfMoeConfig, ReadsSlidingWindows) {
  const auto window = [](const std::string& family, const Json& changes) {
    const TransformerConfig model = model_of(with_experts(family, changes));
    return std::pair(model.window_size ? (*model.window_size)[0] + 1 : 0, windowed_layers(model));
  };
  using Window = std::pair<std::int64_t, Layers>;
  const Json seven = {{"sliding_window", 7}};
  Json used = seven;
  used["use_sliding_window"] = true;
  EXPECT_EQ(window("mixtral", seven), (Window{7, {}}));
  EXPECT_EQ(window("qwen3_moe", seven), (Window{0, {}}));
  EXPECT_EQ(window("qwen3_moe", used), (Window{7, {}}));
  EXPECT_EQ(window("qwen3_moe", {{"use_sliding_window", true}}), (Window{4096, {}}));
  EXPECT_EQ(window("qwen2_moe", {{"sliding_window", 0}}), (Window{0, {}}));
  EXPECT_EQ(window("qwen2_moe", used), (Window{7, {1, 0, 1, 0, 1}}));
  used["max_window_layers"] = 3;
  EXPECT_EQ(window("qwen2_moe", used), (Window{7, {1, 0, 1, 0, 0}}));
  used["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention",
                         "full_attention"};
  EXPECT_EQ(window("qwen2_moe", used), (Window{7, {0, 1, 0, 0, 0}}));
}

TEST(HfMoeConfig, NamesTheFieldThatIsNotSupported) {
  const std::vector<std::pair<Json, std::vector<std::string>>> cases{
      {with_experts("mixtral", {{"num_local_experts", 0}}), {"num_local_experts"}},
      {with_experts("mixtral", {{"num_local_experts", std::int64_t{1} << 60}}),
       {"num_local_experts"}},
      {with_experts("mixtral", {{"num_experts_per_tok", 7}}), {"num_experts_per_tok", "1 and 6"}},
      {with_experts("mixtral", {{"num_experts_per_tok", 0}}), {"num_experts_per_tok"}},
      {with_experts("mixtral", {{"layer_types", {"full_attention"}}}), {"layer_types"}},
      {with_experts("mixtral", {{"router_jitter_noise", -0.5}}), {"router_jitter_noise"}},
      {with_experts("mixtral", {{"router_jitter_noise", 1}}), {"router_jitter_noise", "below 1"}},
      {with_experts("qwen2_moe", {{"num_experts", "6"}}), {"num_experts", "integer"}},
      {with_experts("qwen2_moe", {{"moe_intermediate_size", 0}}), {"moe_intermediate_size"}},
      {with_experts("qwen2_moe", {{"shared_expert_intermediate_size", 0}}),
       {"shared_expert_intermediate_size"}},
      {with_experts("qwen2_moe", {{"norm_topk_prob", 1}}), {"norm_topk_prob"}},
      {with_experts("qwen2_moe", {{"router_aux_loss_coef", -1}}), {"router_aux_loss_coef"}},
      {with_experts("qwen3_moe", {{"decoder_sparse_step", 0}}), {"decoder_sparse_step"}},
      {with_experts("qwen3_moe", {{"decoder_sparse_step", 6}}),
       {"decoder_sparse_step", "at least one layer"}},
      {with_experts("qwen3_moe", {{"mlp_only_layers", {0, 1, 2, 3, 4}}}),
       {"mlp_only_layers", "at least one layer"}},
      {with_experts("qwen3_moe", {{"mlp_only_layers", 3}}), {"mlp_only_layers", "list"}},
      {with_experts("qwen3_moe", {{"mlp_only_layers", {"3"}}}), {"mlp_only_layers", "list"}},
      {with_experts("qwen3_moe", {{"attention_bias", true}}), {"attention_bias"}},
      {with_experts("dbrx"), {"model_type", "dbrx"}},
  };
  for (const auto& [json, named] : cases) {
    std::vector<std::string> words = named;
    words.push_back("config.json");
    expect_user_error([&, &broken = json] { model_of(broken); }, words, json.dump());
  }
}

std::vector<Json> expert_configs() {
  return {with_experts("mixtral", {{"sliding_window", 9}, {"router_jitter_noise", 0.5}}),
          with_experts("mixtral", {{"head_dim", 24}, {"tie_word_embeddings", false}}),
          with_experts("qwen2_moe", {{"shared_expert_intermediate_size", 72},
                                     {"use_sliding_window", true},
                                     {"sliding_window", 9}}),
          with_experts("qwen2_moe", {{"norm_topk_prob", false},
                                     {"qkv_bias", false},
                                     {"mlp_only_layers", {1}},
                                     {"decoder_sparse_step", 2}}),
          with_experts("qwen3_moe", {{"head_dim", 24},
                                     {"decoder_sparse_step", 2},
                                     {"use_sliding_window", true},
                                     {"sliding_window", 9}}),
          with_experts("qwen3_moe", {{"norm_topk_prob", false}, {"mlp_only_layers", {0, 3}}}),
          with_experts("olmoe", {{"clip_qkv", 8.5}, {"num_key_value_heads", 4}})};
}

TEST(HfMoeConfig, WritesWhatItReads) {
  for (const Json& json : expert_configs()) {
    const HfConfig config = parse_hf_config(json, "c");
    const Json fresh = make_hf_config(config.model, config.model_type, "bfloat16", nullptr);
    const TransformerConfig back = model_of(fresh);
    EXPECT_TRUE(forward_differences(config.model, back).empty()) << fresh;
    const MoeConfig &a = config.model.moe, &b = back.moe;
    EXPECT_EQ(a.num_experts, b.num_experts) << fresh;
    EXPECT_EQ(a.layer_freq, b.layer_freq) << fresh;
    EXPECT_EQ(a.ffn_hidden_size, b.ffn_hidden_size) << fresh;
    EXPECT_EQ(a.shared_expert_intermediate_size, b.shared_expert_intermediate_size) << fresh;
    EXPECT_EQ(a.router_topk, b.router_topk) << fresh;
    EXPECT_EQ(a.router_pre_softmax, b.router_pre_softmax) << fresh;
    EXPECT_EQ(a.aux_loss_coeff, b.aux_loss_coeff) << fresh;
    EXPECT_EQ(a.input_jitter_eps, b.input_jitter_eps) << fresh;
    EXPECT_EQ(fresh.at("output_router_logits"), false);
  }
}

TEST(HfMoeConfig, RefusesWhatAFamilyCannotExpress) {
  const auto refused = [](const std::string& family, auto change, const std::string& member) {
    TransformerConfig model = model_of(with_experts(family));
    change(model.moe);
    expect_user_error([&] { make_hf_config(model, family, "float32", nullptr); }, {family, member});
  };
  refused(
      "mixtral", [](MoeConfig& moe) { moe.router_pre_softmax = true; }, "--moe-router-pre-softmax");
  refused(
      "mixtral", [](MoeConfig& moe) { moe.layer_freq = "[1,1,0,1,1]"; }, "--moe-layer-freq");
  refused(
      "qwen2_moe", [](MoeConfig& moe) { moe.shared_expert_gate = false; },
      "--moe-shared-expert-gate");
  refused(
      "qwen3_moe", [](MoeConfig& moe) { moe.shared_expert_intermediate_size = 40; },
      "--moe-shared-expert-intermediate-size");
  refused(
      "qwen3_moe", [](MoeConfig& moe) { moe.router_score_function = RouterScore::sigmoid; },
      "--moe-router-score-function");
  refused(
      "qwen3_moe", [](MoeConfig& moe) { moe.expert_capacity_factor = 1.5; },
      "--moe-expert-capacity-factor");
  refused(
      "qwen3_moe", [](MoeConfig& moe) { moe.num_experts = 0; }, "--num-experts");
}

// A name that is no training member would be ignored.
TEST(HfMoeConfig, GivesTrainingMembers) {
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    const HfConfig config = parse_hf_config(with_experts(family), "c");
    for (const auto& [name, origin] : config.given_training_fields) {
      EXPECT_TRUE(training_members().set().find_name(name)) << name;
    }
  }
}

TEST(HfMoeConfig, WritesEverySpellingOfTheOriginal) {
  Json original = with_experts("qwen3_moe", {{"output_router_logits", true}});
  original["num_local_experts"] = 6;
  TransformerConfig model = model_of(original);
  EXPECT_EQ(make_hf_config(model, "qwen3_moe", "float32", &original).at("norm_topk_prob"), true);
  model.rotary_base = 500;
  model.moe.num_experts = 12;
  const Json changed = make_hf_config(model, "qwen3_moe", "float32", &original);
  EXPECT_EQ(changed.at("num_experts"), 12);
  EXPECT_EQ(changed.at("num_local_experts"), 12);
  EXPECT_EQ(changed.at("output_router_logits"), true);
}

TEST(HfMoeConfig, SurvivesRandomDamage) {
  std::mt19937 random(5);
  const std::vector<Json> configs = expert_configs();
  for (std::size_t round = 0; round < 2000; ++round) {
    try {
      parse_hf_config(parse_json(mutate(configs[round % configs.size()].dump(), random), "c"), "c");
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
}

}  // namespace
}  // namespace megatron
