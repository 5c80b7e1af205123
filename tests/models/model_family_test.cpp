#include "megatron/models/model_family.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/config/checkpoint_options.h"
#include "megatron/config/model_families.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"
#include "support/message_of.h"

namespace megatron {
namespace {

TransformerConfig small() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.num_attention_heads = 2;
  config.vocab_size = 64;
  resolve(config);
  return config;
}

TEST(ModelFamily, EachNameOfTheCommandLineIsFound) {
  ASSERT_EQ(library_families().all().size(), kModelFamilyNames.size());
  for (const std::string_view name : kModelFamilyNames)
    EXPECT_EQ(find_model_family(name).name, name);
}

TEST(ModelFamily, EachModelTypeOfHuggingFaceBelongsToExactlyOne) {
  for (const HfFamily& family : hf_families()) {
    EXPECT_EQ(family_of_model_type(family.model_type).name, family.network);
    EXPECT_EQ(std::ranges::count(hf_families(), family.model_type, &HfFamily::model_type), 1);
  }
  EXPECT_EQ(family_of_model_type("llama").name, "gpt");
}

TEST(ModelFamily, ConversionWritesEachModelTypeOfHuggingFace) {
  std::vector<std::string> types;
  for (const HfFamily& family : hf_families()) types.push_back(family.model_type);
  EXPECT_EQ(convert_table().set().find_name("hf_model_type")->choices, types);
}

TEST(ModelFamily, WeightsWithoutAModelTypeAreOfTheFirst) {
  EXPECT_EQ(family_of_model_type("").name, kModelFamilyNames.front());
}

TEST(ModelFamily, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_EQ(message_of([] { find_model_family("retro"); }),
            "model: must be one of gpt, hybrid, bert, t5, got 'retro'");
  EXPECT_EQ(message_of([] { family_of_model_type("mamba"); }),
            "model_type 'mamba' is not supported\n  fix: "
            "supported: gpt2, llama, qwen2, qwen3, mistral, mixtral, qwen2_moe, qwen3_moe, "
            "olmoe, starcoder2, deepseek_v2, deepseek_v3, kimi_k2, gemma, gemma2, gemma3_text, "
            "vaultgemma, phi3, seed_oss, hunyuan_v1_dense, smollm3, arcee, olmo2, olmo3, "
            "exaone4, gpt_oss, llama4_text, ministral, ministral3, glm, glm4, glm4_moe, "
            "solar_open, dots1, minimax_m2, ernie4_5, ernie4_5_moe, flex_olmo, hunyuan_v1_moe, "
            "gpt_neox, nemotron, stablelm, phi, granite, granitemoe, cohere, cohere2, "
            "qwen3_next, qwen3_5_text, qwen3_5_moe_text, olmo_hybrid, mamba2, nemotron_h, "
            "bamba, granitemoehybrid, bert, megatron-bert, roberta, t5, mt5, umt5");
}

TEST(ModelFamily, EveryFamilyBuildsAModelAndKnowsItsDimensions) {
  for (const ModelFamily& family : library_families().all()) {
    const auto model = family.make(small(), Rank{}, {.vocab_pad_multiple = 8});
    EXPECT_EQ(model->config().num_layers, 2) << family.name;
    const ModelDimensions dimensions = family.dimensions(small(), 64);
    EXPECT_EQ(dimensions.hidden_size, 32) << family.name;
    EXPECT_EQ(dimensions.padded_vocab_size, 64) << family.name;
  }
}

}  // namespace
}  // namespace megatron
