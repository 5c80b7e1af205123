#include "megatron/models/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TransformerConfig dense() {
  TransformerConfig config;
  config.num_layers = 3;
  config.hidden_size = 32;
  config.num_attention_heads = 2;
  config.vocab_size = 64;
  config.max_position_embeddings = 16;
  resolve(config);
  return config;
}

/// A model whose members of experts differ from their defaults, as far as the rules allow.
TransformerConfig sparse() {
  TransformerConfig config = dense();
  MoeConfig& moe = config.moe;
  moe.num_experts = 8;
  moe.layer_freq = "[0]+[1]*2";
  moe.ffn_hidden_size = 24;
  moe.shared_expert_intermediate_size = 40;
  moe.shared_expert_gate = true;
  moe.latent_size = 16;
  moe.router_topk = 4;
  moe.router_score_function = RouterScore::sigmoid;
  moe.router_pre_softmax = true;
  moe.router_topk_scaling_factor = 2.5;
  moe.router_num_groups = 4;
  moe.router_group_topk = 2;
  moe.router_enable_expert_bias = true;
  moe.router_bias_update_rate = 0.25;
  moe.router_dtype = RouterDtype::fp32;
  moe.router_load_balancing_type = {LoadBalancing::seq_aux_loss, LoadBalancing::global_aux_loss};
  moe.aux_loss_coeff = {0.5, 0.125};
  moe.z_loss_coeff = 0.001;
  moe.input_jitter_eps = 0.01;
  moe.expert_capacity_factor = 1.5;
  moe.pad_expert_input_to_capacity = true;
  moe.token_drop_policy = TokenDropPolicy::position;
  resolve(config);
  return config;
}

std::string error_of(const Json& json) {
  return message_of([&] { architecture_from_json(json, "file"); });
}

TEST(Architecture, ExpertsSurviveARoundTrip) {
  const Json json = architecture_to_json(sparse());
  const TransformerConfig back = architecture_from_json(json, "file");
  EXPECT_EQ(architecture_to_json(back), json);
  EXPECT_THAT(forward_differences(sparse(), back), IsEmpty());
  EXPECT_THAT(expert_layers(back), ElementsAre(0, 1, 1));
  const MoeConfig moe = sparse().moe;
  int equal = 0;
  for (const Field& field : moe_table().set().fields) {
    if (field.name == "moe_layer_freq") continue;  // moe_layers holds it
    EXPECT_EQ(field.get(&back.moe), field.get(&moe)) << field.name;
    equal += field.get(&moe) != field.default_values;
  }
  EXPECT_EQ(equal, 21);
  EXPECT_EQ(json.at("moe_router_load_balancing_type"), Json({"seq_aux_loss", "global_aux_loss"}));
  EXPECT_EQ(json.at("moe_layers"), Json({0, 1, 1}));
}

TEST(Architecture, ADenseModelHasNoMembersOfExperts) {
  const Json json = architecture_to_json(dense());
  for (const auto& [name, value] : json.items())
    EXPECT_FALSE(name == "num_experts" || name.starts_with("moe_")) << name;
  EXPECT_EQ(architecture_from_json(json, "file").moe.num_experts, 0);
}

TEST(Architecture, MembersOfExpertsMayBeAbsent) {
  Json json = architecture_to_json(sparse());
  json.erase("moe_router_dtype");
  json.erase("moe_z_loss_coeff");
  const TransformerConfig back = architecture_from_json(json, "file");
  EXPECT_EQ(back.moe.router_dtype, RouterDtype::none);
  EXPECT_FALSE(back.moe.z_loss_coeff);
  EXPECT_EQ(back.moe.latent_size, 16);
  json["from_the_future"] = 1;
  EXPECT_THAT(error_of(json), HasSubstr("file: unknown field 'from_the_future'"));
  json["as_many_as_are_absent"] = 1;
  EXPECT_THAT(error_of(json), HasSubstr("file: unknown field"));
  for (const char* name : {"hidden_size", "hidden_dropout"}) {
    Json without = architecture_to_json(sparse());
    without.erase(name);
    EXPECT_THAT(error_of(without), HasSubstr(name));
  }
}

TEST(Architecture, ClampAndOffsetSurviveARoundTripAndMayBeAbsent) {
  TransformerConfig config = sparse();
  config.activation = Activation::quick_gelu;
  config.gated_linear_unit = true;
  config.activation_func_clamp_value = 7;
  config.glu_linear_offset = 1;
  Json json = architecture_to_json(config);
  const TransformerConfig back = architecture_from_json(json, "file");
  EXPECT_EQ(back.activation_func_clamp_value, 7);
  EXPECT_EQ(back.glu_linear_offset, 1);
  json.erase("activation_func_clamp_value");
  json.erase("glu_linear_offset");
  const TransformerConfig older = architecture_from_json(json, "file");
  EXPECT_FALSE(older.activation_func_clamp_value);
  EXPECT_EQ(older.glu_linear_offset, 0);
  EXPECT_EQ(forward_differences(back, older).size(), 2u);
}

TEST(Architecture, RecurrentLayersSurviveARoundTrip) {
  TransformerConfig model = sparse();
  model.linear_attention.num_key_heads = 8;
  set_linear_attention(model, {1, 0, 1});
  const Json json = architecture_to_json(model);
  EXPECT_EQ(json.at("linear_layers"), Json({1, 0, 1}));
  EXPECT_EQ(json.at("linear_num_key_heads"), 8);
  EXPECT_FALSE(json.contains("mamba_state_dim")) << "members at their defaults are absent";
  TransformerConfig again = architecture_from_json(json, "file");
  resolve(again);
  EXPECT_EQ(again.kind(0).mixer, MixerKind::gated_delta_net);
  EXPECT_EQ(again.layers, model.layers);
  EXPECT_THAT(forward_differences(model, again), IsEmpty());
  set_linear_attention(again, {0, 0, 0});
  EXPECT_EQ(forward_differences(model, again).front().member, "experimental_attention_variant");
  EXPECT_FALSE(architecture_to_json(sparse()).contains("linear_layers"));
  Json wrong = json;
  wrong["linear_num_value_heads"] = -1;
  EXPECT_THROW(architecture_from_json(wrong, "file"), UserError);
}

TEST(Architecture, SizesOfExpertsAreChecked) {
  const auto changed = [](const char* name, const Json& value) {
    Json json = architecture_to_json(sparse());
    json[name] = value;
    return error_of(json);
  };
  EXPECT_THAT(changed("num_experts", -8), HasSubstr("'num_experts' must be between 0 and"));
  EXPECT_THAT(changed("num_experts", 1000000), HasSubstr("'num_experts' must be between 0 and"));
  EXPECT_THAT(changed("moe_ffn_hidden_size", -1), HasSubstr("'moe_ffn_hidden_size' must be"));
  EXPECT_THAT(changed("moe_shared_expert_intermediate_size", -1),
              HasSubstr("'moe_shared_expert_intermediate_size' must be"));
  EXPECT_THAT(changed("moe_latent_size", std::int64_t{1} << 40),
              HasSubstr("'moe_latent_size' must be between 0 and 16777216"));
  EXPECT_THAT(changed("moe_router_topk", 9),
              HasSubstr("'moe_router_topk' must be between 1 and 8"));
  EXPECT_THAT(changed("moe_router_num_groups", -4), HasSubstr("'moe_router_num_groups' must be"));
  EXPECT_THAT(changed("moe_router_num_groups", 3), HasSubstr("no multiple of"));
  EXPECT_THAT(changed("moe_layers", Json({0, 0})),
              HasSubstr("moe_layers must name every layer: 2 entries for 3 layers"));
  EXPECT_THAT(changed("moe_layers", Json({0, 2, 1})), HasSubstr("other than 0 and 1"));
  EXPECT_THAT(changed("moe_router_score_function", "tanh"), HasSubstr("'tanh' is not a known"));
}

TEST(CanonicalArchitecture, WithoutExpertsNothingOfThemIsLeft) {
  TransformerConfig config = dense();
  config.moe.router_topk = 7;
  config.moe.latent_size = 5;
  EXPECT_THAT(forward_differences(config, dense()), IsEmpty());
  config = sparse();
  set_experts(config, {0, 0, 0});
  EXPECT_THAT(forward_differences(config, dense()), IsEmpty()) << "no layer has experts";
}

TEST(CanonicalArchitecture, MembersWithoutEffectHaveTheirDefaults) {
  TransformerConfig plain = dense();
  plain.moe.num_experts = 4;
  plain.moe.router_score_function = RouterScore::sigmoid;
  TransformerConfig same = plain;
  set_experts(same, {1, 1, 1});
  same.moe.ffn_hidden_size = same.ffn_hidden_size;
  same.moe.router_topk_scaling_factor = 1;
  same.moe.router_num_groups = 2;
  same.moe.router_group_topk = 2;
  same.moe.router_pre_softmax = true;
  same.moe.shared_expert_gate = true;
  same.moe.pad_expert_input_to_capacity = true;
  same.moe.token_drop_policy = TokenDropPolicy::position;
  EXPECT_THAT(forward_differences(plain, same), IsEmpty());
  EXPECT_THAT(expert_layers(canonical_architecture(same)), IsEmpty());
  same.ffn_hidden_size = 99;
  EXPECT_THAT(forward_differences(plain, same), IsEmpty()) << "no MLP is dense";
  set_experts(same, {0, 1, 1});
  set_experts(plain, {0, 1, 1});
  EXPECT_EQ(forward_differences(plain, same).size(), 1u);
}

TEST(CanonicalArchitecture, APatternOfPairsIsAGpt) {
  TransformerConfig hybrid = sparse();
  split_blocks(hybrid);
  EXPECT_EQ(hybrid.hybrid_layer_pattern, "*-*E*E");
  EXPECT_THAT(forward_differences(sparse(), hybrid), IsEmpty());
  const Json json = architecture_to_json(hybrid);
  EXPECT_EQ(architecture_from_json(json, "file").kind(3), hybrid.kind(3));
  EXPECT_FALSE(architecture_to_json(sparse()).contains("hybrid_layer_pattern"));
  hybrid.hybrid_layer_pattern = "*--E*E";
  EXPECT_EQ(forward_differences(sparse(), hybrid).front().member, "num_layers");
}

TEST(CanonicalArchitecture, DifferencesOfExpertsAreNamed) {
  const auto difference = [](auto change) {
    TransformerConfig other = sparse();
    change(other.moe);
    const auto all = forward_differences(sparse(), other);
    return all.size() == 1 ? all[0].member + " " + all[0].left + " " + all[0].right
                           : std::to_string(all.size()) + " differences";
  };
  EXPECT_EQ(difference([](MoeConfig& m) { m.layer_freq = "[1,0,1]"; }), "moe_layers 0 1 1 1 0 1");
  EXPECT_EQ(difference([](MoeConfig& m) { m.router_topk = 2; }), "moe_router_topk 4 2");
  EXPECT_EQ(difference([](MoeConfig& m) { m.router_topk_scaling_factor = 2; }),
            "moe_router_topk_scaling_factor 2.5 2");
  EXPECT_EQ(difference([](MoeConfig& m) { m.router_group_topk = 1; }), "moe_router_group_topk 2 1");
  EXPECT_EQ(difference([](MoeConfig& m) { m.token_drop_policy = TokenDropPolicy::probs; }),
            "moe_token_drop_policy position probs");
  EXPECT_EQ(difference([](MoeConfig& m) {
              m.aux_loss_coeff = {0, 0};
            }),
            "0 differences")
      << "only training uses it";
  EXPECT_EQ(difference([](MoeConfig& m) { m.token_dispatcher_type = TokenDispatcherType::flex; }),
            "0 differences");
}

TEST(CanonicalArchitecture, ForgetsVariantsWithoutEffect) {
  TransformerConfig plain = dense(), same = dense();
  same.share_block_norm = true;
  plain.normalization = same.normalization = Normalization::RMSNorm;
  same.add_norm_bias = false;
  same.qk_layernorm_scope = QkNormScope::each_head;
  same.attention_chunk_size = 8;
  same.rotary_base_local = 100;
  same.no_rope_freq = "2";
  same.attn_temperature_scale = 0.1;
  plain.attn_temperature_all_layers = true;
  set_windows(same, {0, 0, 0});
  EXPECT_THAT(forward_differences(plain, same), IsEmpty());
  plain.position_embedding_type = same.position_embedding_type = PositionEmbedding::rope;
  EXPECT_EQ(forward_differences(plain, same).size(), 2u) << "NoPE layers and their temperature";
  set_windows(same, {0, 1, 1});
  EXPECT_EQ(forward_differences(plain, same).size(), 5u);
}

}  // namespace
}  // namespace megatron
