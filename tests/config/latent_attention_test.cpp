// The flags of multi-latent attention: Megatron-LM's defaults, and what contradicts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Args latents(const Args& more) {
  Args words{"--multi-latent-attention", "--position-embedding-type", "rope"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TransformerConfig model_of(const Args& more) {
  return *read_run(small(latents(more))).options.settings.model;
}

TEST(LatentAttention, HasYarnUnlessRopeIsAskedFor) {
  const TransformerConfig model = model_of({});
  EXPECT_EQ(model.kind(1).mixer, MixerKind::latent_attention);
  EXPECT_EQ(model.rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(model.rope_scaling_factor, 1);
  EXPECT_EQ(model.rope_original_max_position_embeddings, 4096);
  EXPECT_EQ(model.yarn_mscale_all_dim, 0);
  EXPECT_EQ(model.qk_channels(), 128 + 64);
  EXPECT_EQ(model.rotated_channels(), 64);
  EXPECT_EQ(model_of({"--rotary-scaling-factor", "40"}).rope_scaling_factor, 40);
  EXPECT_EQ(model_of({"--rope-type", "yarn"}).rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(model_of({"--rope-type", "rope"}).rope_scaling_type, RopeScaling::none);
}

TEST(LatentAttention, TakesTheSpellingsOfOthers) {
  const TransformerConfig model = model_of({"--qk-nope-head-dim", "24", "--qk-rope-head-dim", "8",
                                            "--q-lora-rank", "None", "--kv-lora-rank", "16"});
  EXPECT_EQ(model.qk_head_dim, 24);
  EXPECT_EQ(model.qk_pos_emb_head_dim, 8);
  EXPECT_EQ(model.q_lora_rank, 0);
}

TEST(LatentAttention, ExcludesWhatItHasOtherwise) {
  const auto mistake_with = [](const Args& more) { return mistake(latents(more)); };
  EXPECT_THAT(mistake_with({"--group-query-attention", "--num-query-groups", "2"}),
              HasSubstr("--group-query-attention: excludes --multi-latent-attention, in which"));
  EXPECT_THAT(mistake_with({"--rotary-interleaved"}),
              HasSubstr("--rotary-interleaved: excludes --multi-latent-attention, which rotates"));
  EXPECT_THAT(mistake_with({"--rotary-percent", "0.5"}), HasSubstr("--qk-pos-emb-head-dim"));
  EXPECT_THAT(mistake_with({"--clip-qkv", "3"}), HasSubstr("--clip-qkv: excludes"));
  for (const Args& more : std::vector<Args>{{"--no-rope-freq", "2"},
                                            {"--qk-l2-norm"},
                                            {"--attention-output-gate"},
                                            {"--softmax-scale", "0.1"}})
    EXPECT_THAT(mistake_with(more), HasSubstr(more[0] + ": excludes --multi-latent-attention"));
  EXPECT_THAT(mistake_with({"--window-size", "7,0", "--rotary-base-local", "100"}),
              HasSubstr("--rotary-base-local: excludes --multi-latent-attention"));
  EXPECT_THAT(mistake_with({"--qk-layernorm", "--qk-layernorm-placement", "after_rotary"}),
              HasSubstr("excludes --multi-latent-attention, which normalizes its latents"));
  EXPECT_EQ(
      mistake_with({"--softmax-type", "learnable", "--attention-chunk-size", "8",
                    "--attn-logit-softcapping", "2", "--qk-clip", "--norm-placement", "sandwich"}),
      "no error");
  EXPECT_THAT(mistake_with({"--qk-pos-emb-head-dim", "9"}), HasSubstr("use an even number"));
  EXPECT_THAT(mistake({"--multi-latent-attention", "--position-embedding-type", "yarn"}),
              HasSubstr("rope with --rope-type yarn"));
  EXPECT_EQ(mistake_with({"--recompute-granularity", "selective", "--recompute-modules",
                          "mla_up_proj", "layernorm"}),
            "no error");
}

// multi_latent_attention.py of megatron-core reads rope_type alone; gpt_model.py gives rope_scaling
// to other attention only. Scripts of Pai-Megatron-Patch have both flags.
TEST(LatentAttention, DoesNotReadUseRopeScaling) {
  EXPECT_EQ(model_of({"--use-rope-scaling"}).rope_scaling_type, RopeScaling::yarn);
  for (const char* type : {"rope", "yarn"}) {
    const auto run = read_run(small(latents({"--rope-type", type, "--use-rope-scaling"})));
    EXPECT_EQ(run.options.settings.model->rope_scaling_type,
              type == std::string("yarn") ? RopeScaling::yarn : RopeScaling::none);
    EXPECT_THAT(notes_text(run.parsed.notes),
                HasSubstr("--use-rope-scaling: with --multi-latent-attention, as in Megatron-LM"));
  }
}

TEST(LatentAttention, FlagsOfRotaryScalingWaitForTheLoadedModel) {
  const auto translated = [](const Args& flags, const TransformerConfig* loaded) {
    Args words{"--load", "ckpt"};
    words.insert(words.end(), flags.begin(), flags.end());
    RunConfig run = read_run(small(words));
    EXPECT_THAT(notes_text(run.parsed.notes), Not(HasSubstr("without effect")));
    Problems problems;
    translate_rope_flags(run.options.settings, run.parsed, problems, loaded);
    EXPECT_TRUE(problems.empty());
    return run;
  };
  TransformerConfig latent, dense;
  latent.multi_latent_attention = true;
  latent.rope_scaling_type = RopeScaling::yarn;
  const Args yarn{"--rope-type", "yarn", "--rotary-scaling-factor", "40"};
  const RunConfig run = translated(yarn, &latent);
  EXPECT_TRUE(run.parsed.is_set("rope_scaling_type"));
  EXPECT_EQ(run.options.settings.model->rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(run.options.settings.model->rope_scaling_factor, 40);
  EXPECT_EQ(notes_text(run.parsed.notes), "");
  EXPECT_TRUE(
      translated({"--rotary-scaling-factor", "40"}, &latent).parsed.is_set("rope_scaling_factor"));
  EXPECT_EQ(translated({"--rope-type", "rope"}, &latent).options.settings.model->rope_scaling_type,
            RopeScaling::none);
  EXPECT_FALSE(translated({"--use-rope-scaling"}, &latent).parsed.is_set("rope_scaling_type"));
  EXPECT_TRUE(translated({"--use-rope-scaling"}, &dense).parsed.is_set("rope_scaling_type"));
  for (const TransformerConfig* loaded :
       std::initializer_list<const TransformerConfig*>{&dense, nullptr}) {
    const RunConfig without = translated(yarn, loaded);
    EXPECT_FALSE(without.parsed.is_set("rope_scaling_type"));
    EXPECT_THAT(notes_text(without.parsed.notes),
                HasSubstr("--rope-type: there is no --multi-latent-attention\n"));
  }
}

TEST(LatentAttention, SizesWithoutItAreNoted) {
  const auto notes = read_run(small({"--kv-lora-rank", "16", "--rope-type", "yarn"})).parsed.notes;
  std::size_t count = 0;
  for (const auto& [remark, flags] : notes) count += flags.size();
  EXPECT_EQ(count, 2U);
}

}  // namespace
}  // namespace megatron
