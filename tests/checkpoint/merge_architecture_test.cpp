#include "megatron/checkpoint/merge_architecture.h"

#include <gtest/gtest.h>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

CheckpointSource source_of(const TransformerConfig& model,
                           const std::vector<std::string>& knobs = {}) {
  CheckpointSource source;
  source.folder = "ckpt";
  source.model = model;
  for (const std::string& name : knobs) source.given_training_fields[name] = "config.json";
  return source;
}

ParseResult given(std::initializer_list<const char*> names) {
  ParseResult parsed;
  for (const char* name : names)
    parsed.origins[name] = Origin{Origin::Kind::flag, std::string("--") + name};
  return parsed;
}

TEST(MergeArchitecture, TakesTheCheckpointsAndTheFlagsKnobs) {
  TransformerConfig there = tiny_llama(), flags;
  there.attention_dropout = 0;
  there.init_method_std = 0.5;
  flags.init_method_std = 0.25;
  const TransformerConfig merged =
      merge_architecture(source_of(there, {"attention_dropout", "init_method_std"}), flags,
                         given({"init_method_std"}));
  EXPECT_EQ(merged.hidden_size, 16);
  EXPECT_EQ(merged.attention_dropout, 0);
  EXPECT_EQ(merged.hidden_dropout, 0.1);
  EXPECT_EQ(merged.init_method_std, 0.25);
}

TEST(MergeArchitecture, TellsWhereTheKnobsComeFrom) {
  TransformerConfig there = tiny_llama(), flags;
  there.hidden_dropout = 0;
  there.attention_dropout = 0.25;
  flags.init_method_std = 0.5;
  CheckpointSource source =
      source_of(there, {"attention_dropout", "init_method_std", "moe_input_jitter_eps"});
  source.given_training_fields["hidden_dropout"] = "the family has none";
  const ParseResult parsed = given({"init_method_std"});
  EXPECT_EQ(training_origins(source, merge_architecture(source, flags, parsed), parsed),
            "attention_dropout 0.25 (config.json), hidden_dropout 0 (the family has none), "
            "init_method_std 0.5 (--init_method_std), moe_input_jitter_eps none (config.json)");
}

TEST(MergeArchitecture, AcceptsFlagsThatAgree) {
  TransformerConfig flags;
  flags.num_layers = 2;
  flags.activation = Activation::silu;
  flags.gated_linear_unit = flags.group_query_attention = true;
  flags.num_query_groups = 2;
  flags.max_position_embeddings = 64;
  const auto parsed =
      given({"num_layers", "activation", "gated_linear_unit", "group_query_attention",
             "num_query_groups", "max_position_embeddings"});
  EXPECT_EQ(merge_architecture(source_of(tiny_llama()), flags, parsed).max_position_embeddings, 64);
}

TEST(MergeArchitecture, NamesEveryContradiction) {
  TransformerConfig flags;
  flags.num_layers = 3;
  flags.activation = Activation::squared_relu;
  flags.rotary_base = 5;
  const auto parsed = given({"num_layers", "activation", "rotary_base", "add_qkv_bias"});
  expect_user_error(
      [&] { merge_architecture(source_of(tiny_llama()), flags, parsed); },
      {"--num_layers", "is 2 there, the flag says 3", "--activation",
       "activation is silu there, the flag says squared_relu", "--rotary_base", "10000"});
}

TEST(MergeArchitecture, OneFlagIsOneContradiction) {
  TransformerConfig flags;
  flags.position_embedding_type = PositionEmbedding::learned_absolute;
  flags.max_position_embeddings = 16;
  ParseResult parsed = given({"position_embedding_type", "max_position_embeddings"});
  parsed.origins["activation"] = parsed.origins["gated_linear_unit"] =
      Origin{Origin::Kind::flag, "--openai-gelu"};
  flags.activation = Activation::gelu_tanh;
  try {
    merge_architecture(source_of(tiny_llama()), flags, parsed);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("2 problems"), std::string::npos) << text;
    EXPECT_NE(text.find("activation is silu there, the flag says gelu_tanh; gated_linear_unit is "
                        "true there, the flag says false"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("max_position_embeddings"), std::string::npos)
        << "follows from the positions: " << text;
  }
}

TEST(MergeArchitecture, KeepsLearnedPositions) {
  TransformerConfig there = tiny_llama(), flags;
  there.position_embedding_type = PositionEmbedding::learned_absolute;
  flags.max_position_embeddings = 16;
  expect_user_error(
      [&] { merge_architecture(source_of(there), flags, given({"max_position_embeddings"})); },
      {"max_position_embeddings", "32", "16"});
  flags.rotary_base = 7;
  EXPECT_NO_THROW(merge_architecture(source_of(there), flags, given({"rotary_base"})));
  flags.rope_scaling_type = RopeScaling::llama3;  // has a note, as in a new run
  const auto scaled = given({"rope_scaling_type"});
  EXPECT_EQ(merge_architecture(source_of(there), flags, scaled).rope_scaling_type,
            RopeScaling::none);
}

/// Flags of a plain rotary model that continues with others.
TransformerConfig with_rope(RopeScaling type) {
  TransformerConfig flags;
  flags.position_embedding_type = PositionEmbedding::rope;
  flags.rope_scaling_type = type;
  return flags;
}

constexpr MergeOptions kReplaces{.replaces_rotary_frequencies = true};

TEST(MergeArchitecture, ReplacesRotaryFrequenciesOnlyWhenAsked) {
  TransformerConfig flags = with_rope(RopeScaling::llama3);
  flags.rope_scaling_factor = 4;
  flags.rope_original_max_position_embeddings = 256;
  const auto parsed = given({"position_embedding_type", "rope_scaling_type", "rope_scaling_factor",
                             "rope_original_max_position_embeddings"});
  expect_user_error([&] { merge_architecture(source_of(tiny_llama()), flags, parsed); },
                    {"--rope_scaling_type contradicts ckpt: rope_scaling_type is none there, the "
                     "flag says llama3",
                     "to train on with other rotary frequencies, add --finetune",
                     "--phase-transition-iterations"});
  const TransformerConfig merged =
      merge_architecture(source_of(tiny_llama()), flags, parsed, kReplaces);
  EXPECT_EQ(merged.rope_scaling_type, RopeScaling::llama3);
  EXPECT_EQ(merged.rope_scaling_factor, 4);
  EXPECT_EQ(merged.rope_original_max_position_embeddings, 256);
  EXPECT_EQ(merged.rotary_base, tiny_llama().rotary_base);
  EXPECT_EQ(merged.hidden_size, 16);
  EXPECT_EQ(rotary_differences(tiny_llama(), merged),
            "rope_scaling_type none there and llama3 now, rope_scaling_factor 8 there and 4 now, "
            "rope_original_max_position_embeddings 8192 there and 256 now");
  EXPECT_EQ(rotary_differences(merged, merged), "");
}

TEST(MergeArchitecture, AnotherScalingTakesNothingOfTheFormer) {
  TransformerConfig there = tiny_llama();
  there.rope_scaling_type = RopeScaling::llama3;
  there.rope_scaling_factor = 16;
  TransformerConfig flags = with_rope(RopeScaling::none);
  flags.position_embedding_type = PositionEmbedding::yarn;
  flags.rope_scaling_factor = 1;  // Megatron-LM's default for YaRN, which no flag gave
  const auto yarn = given({"position_embedding_type"});
  expect_user_error(
      [&] { merge_architecture(source_of(there), flags, yarn); },
      {"--position_embedding_type", "rope_scaling_type is llama3 there", "the flag says yarn"});
  const TransformerConfig extended = merge_architecture(source_of(there), flags, yarn, kReplaces);
  EXPECT_EQ(extended.rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(extended.rope_scaling_factor, 1);

  // And back, by the name of the scaling.
  const TransformerConfig plain = merge_architecture(
      source_of(extended), with_rope(RopeScaling::none), given({"rope_scaling_type"}), kReplaces);
  EXPECT_EQ(plain.position_embedding_type, PositionEmbedding::rope);
  EXPECT_EQ(plain.rope_scaling_type, RopeScaling::none);
}

TEST(MergeArchitecture, KeepsTheScalingThatNoFlagNames) {
  TransformerConfig there = tiny_llama();
  there.rope_scaling_type = RopeScaling::llama3;
  there.rope_scaling_factor = 16;
  TransformerConfig flags = with_rope(RopeScaling::none);
  flags.rotary_base = 500000;
  const TransformerConfig merged = merge_architecture(
      source_of(there), flags, given({"position_embedding_type", "rotary_base"}), kReplaces);
  EXPECT_EQ(merged.rope_scaling_type, RopeScaling::llama3);
  EXPECT_EQ(merged.rope_scaling_factor, 16);
  EXPECT_EQ(merged.rotary_base, 500000);
}

TEST(MergeArchitecture, RotatedChannelsAreNotReplaced) {
  TransformerConfig flags = with_rope(RopeScaling::none);
  flags.rotary_percent = 0.5;
  flags.rotary_interleaved = true;
  flags.num_layers = 3;
  expect_user_error(
      [&] {
        merge_architecture(source_of(tiny_llama()), flags,
                           given({"rotary_percent", "rotary_interleaved", "num_layers"}),
                           kReplaces);
      },
      {"3 problems", "rotary_percent is 1 there, the flag says 0.5", "rotary_interleaved"});
  TransformerConfig learned = tiny_llama();
  learned.position_embedding_type = PositionEmbedding::learned_absolute;
  expect_user_error(
      [&] {
        merge_architecture(source_of(learned), with_rope(RopeScaling::none),
                           given({"position_embedding_type"}), kReplaces);
      },
      {"position_embedding_type is learned_absolute there, the flag says rope"});
}

TransformerConfig tiny_experts() {
  TransformerConfig model = tiny_llama();
  model.moe.num_experts = 4;
  model.moe.ffn_hidden_size = 8;
  model.moe.z_loss_coeff = 0.5;
  return model;
}

TEST(MergeArchitecture, TakesTheCheckpointsExpertsAndTheFlagsDispatch) {
  TransformerConfig flags;
  flags.moe.token_dispatcher_type = TokenDispatcherType::alltoall;
  flags.moe.aux_loss_coeff = {0.25};
  flags.moe.layer_freq = "[1]*2";
  flags.moe.num_experts = 4;
  const TransformerConfig merged =
      merge_architecture(source_of(tiny_experts(), {"moe_z_loss_coeff", "moe_aux_loss_coeff"}),
                         flags, given({"moe_aux_loss_coeff", "moe_layer_freq", "num_experts"}));
  EXPECT_EQ(merged.moe.num_experts, 4);
  EXPECT_EQ(merged.moe.ffn_hidden_size, 8);
  EXPECT_EQ(merged.moe.z_loss_coeff, 0.5);
  EXPECT_EQ(merged.moe.aux_loss_coeff, std::vector{0.25});
  EXPECT_EQ(merged.moe.token_dispatcher_type, TokenDispatcherType::alltoall);
}

TEST(MergeArchitecture, NamesEveryContradictionOfExperts) {
  TransformerConfig flags;
  flags.moe.num_experts = 8;
  flags.moe.layer_freq = "2";
  flags.ffn_hidden_size = 24;
  expect_user_error(
      [&] {
        merge_architecture(source_of(tiny_experts()), flags,
                           given({"num_experts", "moe_layer_freq", "ffn_hidden_size"}));
      },
      {"3 problems", "num_experts is 4 there, the flag says 8",
       "--moe_layer_freq contradicts ckpt: moe_layers is none there, the flag says 1 0",
       "ffn_hidden_size is 8 there, the flag says 24"});
  TransformerConfig mixed = tiny_experts();
  set_experts(mixed, {0, 1});
  EXPECT_NO_THROW(merge_architecture(source_of(mixed), flags, given({"ffn_hidden_size"})));
}

TEST(MergeArchitecture, APatternMustHaveTheCheckpointsBlocks) {
  TransformerConfig flags;
  flags.hybrid_layer_pattern = "*-*-";
  const auto pattern = given({"hybrid_layer_pattern"});
  EXPECT_EQ(merge_architecture(source_of(tiny_llama()), flags, pattern).num_layers, 2);
  flags.hybrid_layer_pattern = "*-*-*-";
  expect_user_error(
      [&] { merge_architecture(source_of(tiny_llama()), flags, pattern); },
      {"--hybrid_layer_pattern contradicts", "num_layers is 2 there, the flag says 3"});
}

TEST(MergeArchitecture, ADenseModelHasNoUseForFlagsOfExperts) {
  TransformerConfig flags;
  flags.moe.ffn_hidden_size = 8;
  expect_user_error(
      [&] {
        merge_architecture(source_of(tiny_llama()), flags,
                           given({"moe_ffn_hidden_size", "moe_router_topk"}));
      },
      {"--moe_ffn_hidden_size contradicts ckpt: the model has no experts there"});
  flags = {};
  flags.moe.num_experts = 8;
  expect_user_error(
      [&] { merge_architecture(source_of(tiny_llama()), flags, given({"num_experts"})); },
      {"num_experts is 0 there, the flag says 8"});
  flags = {};
  flags.moe.router_topk = 4;
  flags.moe.shared_expert_intermediate_size = 24;
  flags.moe.layer_freq = "2";
  const auto noted =
      given({"moe_router_topk", "moe_shared_expert_intermediate_size", "moe_layer_freq"});
  Settings settings;
  settings.model = merge_architecture(source_of(tiny_llama()), flags, noted);
  EXPECT_EQ(settings.model->moe.router_topk, 2);
  const Notes expected{
      {"without effect: there is no --num-experts",
       {"--moe-layer-freq", "--moe-shared-expert-intermediate-size", "--moe-router-topk"}}};
  EXPECT_EQ(notes_on_flags(settings, flags, noted), expected);
  EXPECT_EQ(notes_on_flags(settings, flags, given({})), Notes());
}

}  // namespace
}  // namespace megatron
