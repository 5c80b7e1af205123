// Tests the settings of the mixture of experts: flags, derived values and rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/print_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Returns the flags of a run with 8 experts.
Args experts(const Args& more) {
  Args words{"--num-experts", "8"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TransformerConfig model_of(const Args& more) {
  Settings settings = read_run(small(more)).options.settings;
  resolve(settings);
  return *settings.model;
}

MoeConfig moe_of(const Args& more) { return model_of(more).moe; }

/// Each line is the flags beyond --num-experts 8, the number of ranks and a part of the error.
void expect_mistakes(const std::vector<BadRun>& table) {
  for (const BadRun& bad : table)
    EXPECT_THAT(mistake(experts(bad.words), bad.world_size), HasSubstr(bad.expected));
}

TEST(MoeSettings, NoneAndZeroAreADenseModel) {
  for (const char* none : {"0", "none", "None"})
    EXPECT_EQ(moe_of({"--num-experts", none}).num_experts, 0);
  const MoeConfig dense = moe_of({});
  EXPECT_EQ(dense.num_experts, 0);
  EXPECT_EQ(dense.ffn_hidden_size, 0);
  EXPECT_EQ(dense.layer_freq, "1");
  for (const char* flag :
       {"--moe-ffn-hidden-size", "--moe-shared-expert-intermediate-size", "--moe-latent-size",
        "--moe-router-num-groups", "--moe-router-group-topk", "--moe-router-topk-scaling-factor",
        "--moe-router-dtype", "--moe-z-loss-coeff", "--moe-input-jitter-eps",
        "--moe-expert-capacity-factor"})
    EXPECT_EQ(mistake({flag, "None"}), "no error") << flag;
}

TEST(MoeSettings, EveryFlagSetsItsMember) {
  const MoeConfig moe = moe_of(experts({"--moe-ffn-hidden-size",
                                        "24",
                                        "--moe-shared-expert-intermediate-size",
                                        "16",
                                        "--moe-shared-expert-gate",
                                        "--moe-latent-size",
                                        "12",
                                        "--moe-router-topk",
                                        "4",
                                        "--moe-router-score-function",
                                        "sigmoid",
                                        "--moe-router-pre-softmax",
                                        "--moe-router-topk-scaling-factor",
                                        "2.5",
                                        "--moe-router-num-groups",
                                        "4",
                                        "--moe-router-group-topk",
                                        "2",
                                        "--moe-router-enable-expert-bias",
                                        "--moe-router-bias-update-rate",
                                        "1e-2",
                                        "--moe-router-dtype",
                                        "fp64",
                                        "--moe-router-force-load-balancing",
                                        "--moe-router-load-balancing-type",
                                        "seq_aux_loss",
                                        "global_aux_loss",
                                        "--moe-aux-loss-coeff",
                                        "1e-2",
                                        "2e-2",
                                        "--moe-z-loss-coeff",
                                        "1e-3",
                                        "--moe-input-jitter-eps",
                                        "0.25",
                                        "--moe-expert-capacity-factor",
                                        "1.5",
                                        "--moe-pad-expert-input-to-capacity",
                                        "--moe-token-drop-policy",
                                        "position",
                                        "--moe-token-dispatcher-type",
                                        "alltoall",
                                        "--moe-shared-expert-overlap",
                                        "--moe-per-layer-logging",
                                        "--moe-use-upcycling",
                                        "--moe-upcycling-granularity",
                                        "2",
                                        "--load",
                                        "dense",
                                        "--save",
                                        "experts"}));
  EXPECT_TRUE(moe.use_upcycling);
  EXPECT_EQ(moe.upcycling_granularity, 2);
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.ffn_hidden_size, 24);
  EXPECT_EQ(moe.shared_expert_intermediate_size, 16);
  EXPECT_TRUE(moe.shared_expert_gate && moe.shared_expert_overlap && moe.per_layer_logging);
  EXPECT_EQ(moe.latent_size, 12);
  EXPECT_EQ(moe.router_topk, 4);
  EXPECT_EQ(moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(moe.router_pre_softmax && moe.router_enable_expert_bias);
  EXPECT_EQ(moe.router_topk_scaling_factor, 2.5);
  EXPECT_EQ(moe.router_num_groups, 4);
  EXPECT_EQ(moe.router_group_topk, 2);
  EXPECT_EQ(moe.router_bias_update_rate, 1e-2);
  EXPECT_EQ(moe.router_dtype, RouterDtype::fp64);
  EXPECT_TRUE(moe.router_force_load_balancing);
  EXPECT_EQ(moe.coefficient(LoadBalancing::seq_aux_loss), 1e-2);
  EXPECT_EQ(moe.coefficient(LoadBalancing::global_aux_loss), 2e-2);
  EXPECT_EQ(moe.coefficient(LoadBalancing::aux_loss), 0);
  EXPECT_EQ(moe.z_loss_coeff, 1e-3);
  EXPECT_EQ(moe.input_jitter_eps, 0.25);
  EXPECT_EQ(moe.expert_capacity_factor, 1.5);
  EXPECT_TRUE(moe.pad_expert_input_to_capacity);
  EXPECT_EQ(moe.token_drop_policy, TokenDropPolicy::position);
  EXPECT_EQ(moe.token_dispatcher_type, TokenDispatcherType::alltoall);
  EXPECT_TRUE(moe_of(experts({"--moe-apply-probs-on-input", "--moe-router-topk", "1",
                              "--moe-router-score-function", "sqrtsoftplus"}))
                  .apply_probs_on_input);
}

TEST(MoeSettings, PlacementNeedsRanksAndAnyOrderOfExperts) {
  const Args due{"--moe-expert-placement-interval", "5", "--expert-model-parallel-size", "2"};
  const auto with = [&](const Args& more) {
    Args words = due;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_EQ(mistake(experts(with({"--moe-token-dispatcher-type", "alltoall"})), 2), "no error");
  expect_mistakes({
      {{"--moe-expert-placement-interval", "5", "--moe-token-dispatcher-type", "alltoall"},
       1,
       "leave it out, or raise --expert-model-parallel-size"},
      {due, 2, "add --moe-token-dispatcher-type alltoall"},
      {with({"--moe-token-dispatcher-type", "flex"}), 2,
       "add --moe-token-dispatcher-type alltoall"},
      {with({"--moe-token-dispatcher-type", "alltoall", "--ddp-grad-compression", "low-rank"}), 2,
       "excludes --ddp-grad-compression low-rank"},
      {with({"--moe-token-dispatcher-type", "alltoall", "--use-distributed-optimizer",
             "--use-precision-aware-optimizer", "--exp-avg-dtype", "fp16", "--bf16"}),
       2, "excludes optimizer states in fp16"},
      {{"--moe-expert-placement-interval", "-1"}, 1, "must be at least 0"},
  });
}

TEST(MoeSettings, UpcyclingNeedsAModelAndAFolder) {
  expect_mistakes({
      {{"--moe-use-upcycling"}, 1, "needs --load, the folder of the dense model"},
      {{"--moe-use-upcycling", "--load", "dense"}, 1, "add --save DIR"},
      {{"--moe-use-upcycling", "--load", "dense", "--save", "new", "--skip-train"},
       1,
       "excludes --skip-train"},
      {{"--moe-layer-freq", "[0,0]"}, 1, "gives experts to no layer"},
      {{"--moe-upcycling-granularity", "0"}, 1, "must be at least 1"},
  });
  EXPECT_THAT(mistake({"--moe-use-upcycling", "--load", "dense", "--save", "new"}),
              HasSubstr("needs --num-experts"));
}

TEST(MoeSettings, ANegativeCapacityFactorIsNone) {
  EXPECT_FALSE(moe_of(experts({"--moe-expert-capacity-factor", "-1"})).expert_capacity_factor);
  EXPECT_THAT(mistake(experts({"--moe-expert-capacity-factor", "0"})),
              HasSubstr("--moe-expert-capacity-factor: must be above 0, got 0"));
}

TEST(MoeSettings, ZeroOfAnOptionalIsNone) {
  const MoeConfig moe =
      moe_of(experts({"--moe-router-num-groups", "0", "--moe-router-topk-scaling-factor", "0"}));
  EXPECT_FALSE(moe.router_num_groups || moe.router_topk_scaling_factor);
}

TEST(MoeSettings, ExpertsAreAsWideAsTheDenseMlpByDefault) {
  EXPECT_EQ(moe_of(experts({"--ffn-hidden-size", "96"})).ffn_hidden_size, 96);
  EXPECT_EQ(moe_of(experts({})).ffn_hidden_size, 192);  // 4 x 48
  EXPECT_EQ(moe_of(experts({"--moe-ffn-hidden-size", "24"})).ffn_hidden_size, 24);
}

TEST(MoeSettings, LayersFollowTheFrequency) {
  const auto layers = [](const char* frequency) {
    return expert_layers(model_of(experts({"--num-layers", "5", "--moe-layer-freq", frequency})));
  };
  EXPECT_THAT(layers("1"), IsEmpty());
  EXPECT_THAT(layers("2"), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(layers("3"), ElementsAre(1, 0, 0, 1, 0));
  EXPECT_THAT(layers("9"), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(layers("[0]*1+[1]*4"), ElementsAre(0, 1, 1, 1, 1));
  EXPECT_THAT(layers("([1]*1+[0])*2+[1]"), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_TRUE(model_of(experts({})).kind(1).has_experts());
}

TEST(MoeRules, FlagsOfExpertsNeedExperts) {
  expect_all({
      {{"--moe-ffn-hidden-size", "24"},
       1,
       "--moe-ffn-hidden-size: needs --num-experts, but every MLP of the model is dense\n  fix: "
       "add --num-experts N, or leave --moe-ffn-hidden-size out"},
      {{"--moe-latent-size", "24", "--moe-router-topk", "4"},
       1,
       "--moe-latent-size: needs --num-experts"},
      {{"--expert-model-parallel-size", "2"},
       2,
       "--expert-model-parallel-size 2: needs --num-experts, but every MLP of the model is dense\n"
       "  fix: add --num-experts N, or leave --expert-model-parallel-size 2 out"},
  });
  EXPECT_EQ(mistake({"--moe-router-topk", "2", "--moe-layer-freq", "1", "--moe-aux-loss-coeff", "0",
                     "--expert-tensor-parallel-size", "1"}),
            "no error");
}

TEST(MoeRules, ExpertParallelismDivides) {
  const char* ep = "--expert-model-parallel-size";
  expect_mistakes({
      {{ep, "3"},
       3,
       "--num-experts: 8 is no multiple of --expert-model-parallel-size 3\n  fix: use "
       "--expert-model-parallel-size 2, or --num-experts 6 or 9"},
      {{"--moe-ffn-hidden-size", "33", "--tensor-model-parallel-size", "2"},
       2,
       "--moe-ffn-hidden-size: 33 is no multiple of --tensor-model-parallel-size 2, by which "
       "experts "
       "are divided without --expert-tensor-parallel-size\n  fix: use --tensor-model-parallel-size "
       "1, or --moe-ffn-hidden-size 32 or 34"},
      {{"--moe-ffn-hidden-size", "32", "--expert-tensor-parallel-size", "3"},
       3,
       "--moe-ffn-hidden-size: 32 is no multiple of --expert-tensor-parallel-size 3\n  fix: use "
       "--expert-tensor-parallel-size 2"},
      {{"--moe-shared-expert-intermediate-size", "15", "--tensor-model-parallel-size", "2"},
       2,
       "--moe-shared-expert-intermediate-size: 15 is no multiple of --tensor-model-parallel-size "
       "2"},
  });
  EXPECT_EQ(mistake(experts({ep, "4"}), 4), "no error");
  EXPECT_EQ(mistake(experts({ep, "2", "--tensor-model-parallel-size", "2",
                             "--expert-tensor-parallel-size", "1", "--moe-ffn-hidden-size", "33"}),
                    2),
            "no error");
  EXPECT_EQ(mistake(experts({"--tensor-model-parallel-size", "2", "--ffn-hidden-size", "99",
                             "--moe-ffn-hidden-size", "32"}),
                    2),
            "no error")
      << "no MLP is dense";
  EXPECT_THAT(mistake(experts({"--tensor-model-parallel-size", "2", "--ffn-hidden-size", "99",
                               "--moe-ffn-hidden-size", "32", "--moe-layer-freq", "2"}),
                      2),
              HasSubstr("--ffn-hidden-size: 99 is no multiple"));
}

TEST(MoeRules, EveryLayerIsListedOnce) {
  const char* freq = "--moe-layer-freq";
  expect_mistakes({
      {{freq, "[0]+[1]*2"},
       1,
       "--moe-layer-freq: names 3 layers, --num-layers is 2\n  fix: list every layer once"},
      {{freq, "0"}, 1, "--moe-layer-freq: must be a number above 0 or a list expression, got '0'"},
      {{freq, "-1"}, 1, "--moe-layer-freq: must be a number above 0"},
      {{freq, "[]"}, 1, "--moe-layer-freq: must be a number above 0"},
      {{freq, "[1"}, 1, "--moe-layer-freq: must be a number above 0"},
      {{freq, "[1,2]"}, 1, "--moe-layer-freq: lists a number other than 0 and 1"},
  });
}

TEST(MoeRules, SharedExpertsAreThere) {
  const char* shared = "--moe-shared-expert-intermediate-size";
  expect_mistakes({
      {{"--moe-shared-expert-overlap", shared, "16"},
       1,
       "--moe-shared-expert-overlap: excludes --moe-token-dispatcher-type allgather"},
      {{"--norm-placement", "post"}, 1, "--norm-placement post: excludes --num-experts"},
      {{"--moe-latent-size", "-1"}, 1, "--moe-latent-size: must be at least 0, got -1"},
  });
  EXPECT_EQ(mistake(experts({"--moe-shared-expert-overlap", shared, "16",
                             "--moe-shared-expert-gate", "--moe-token-dispatcher-type", "flex"})),
            "no error");
}

TEST(MoeRules, TopkFitsTheExperts) {
  const char *topk = "--moe-router-topk", *score = "--moe-router-score-function";
  expect_mistakes({
      {{topk, "0"}, 1, "--moe-router-topk: must be at least 1, got 0"},
      {{topk, "9"},
       1,
       "--moe-router-topk: 9 is not between 1 and --num-experts 8\n  fix: use --moe-router-topk 8 "
       "or change --num-experts"},
      {{topk, "1"},
       1,
       "--moe-router-topk 1: makes the softmax over the selected expert always 1, so that the "
       "router gets no gradient\n  fix: add --moe-router-pre-softmax"},
      {{topk, "1", "--moe-use-upcycling", "--load", "dense", "--save", "new"},
       1,
       "router gets no gradient"},
      {{"--moe-apply-probs-on-input"},
       1,
       "--moe-apply-probs-on-input: needs --moe-router-topk 1, but it is 2"},
  });
  for (const Args& words :
       std::vector<Args>{{topk, "8"},
                         {topk, "1", "--moe-router-pre-softmax"},
                         {topk, "1", score, "sigmoid", "--export-moe-apply-probs-on-input"},
                         {topk, "1", "--load", "trained"},
                         {topk, "1", "--moe-router-load-balancing-type", "sinkhorn"},
                         {"--moe-router-enable-expert-bias"},
                         {"--moe-router-enable-expert-bias", score, "sigmoid"},
                         {"--moe-router-enable-expert-bias", score, "sqrtsoftplus"}})
    EXPECT_EQ(mistake(experts(words)), "no error") << words.back();
}

TEST(MoeRules, GroupsDivideTheExperts) {
  const char *topk = "--moe-router-topk", *groups = "--moe-router-num-groups",
             *kept = "--moe-router-group-topk";
  expect_mistakes({
      {{groups, "3", kept, "1"},
       1,
       "--num-experts: 8 is no multiple of --moe-router-num-groups 3\n  fix: use "
       "--moe-router-num-groups 2, or --num-experts 6 or 9"},
      {{kept, "2"}, 1, "--moe-router-group-topk: needs --moe-router-num-groups"},
      {{groups, "2", kept, "4", topk, "4"},
       1,
       "--moe-router-group-topk: 4 is above --moe-router-num-groups 2"},
      {{groups, "4", kept, "2", topk, "3"},
       1,
       "--moe-router-topk: 3 is no multiple of --moe-router-group-topk 2\n  fix: use "
       "--moe-router-group-topk 1, or --moe-router-topk 2 or 4"},
      {{groups, "4", kept, "2", topk, "6"},
       1,
       "--moe-router-topk: 6 is more than the 4 experts in --moe-router-group-topk 2 of 4 groups\n"
       "  fix: use at most 4, or raise --moe-router-group-topk"},
  });
  EXPECT_EQ(mistake(experts({groups, "4", kept, "2", topk, "4"})), "no error");
}

TEST(MoeRules, EachBalanceHasOneCoefficient) {
  const char *type = "--moe-router-load-balancing-type", *coefficient = "--moe-aux-loss-coeff";
  expect_mistakes({
      {{type, "aux_loss", "seq_aux_loss", coefficient, "1e-2"},
       1,
       "--moe-aux-loss-coeff: has 1 value, --moe-router-load-balancing-type has 2\n  fix: give "
       "one coefficient for each type"},
      {{coefficient, "1e-2", "1e-3"}, 1, "--moe-aux-loss-coeff: has 2 values"},
      {{type, "aux_loss", "aux_loss", coefficient, "1", "1"}, 1, "names a type twice"},
      {{type, "quantile_balancing"}, 1, "fix: use one of these; in place of quantile_balancing"},
      {{type, "seq_aux_los"}, 1, "did you mean 'seq_aux_loss'?"},
      {{coefficient, "-1"}, 1, "--moe-aux-loss-coeff: must be at least 0, got -1"},
      {{"--moe-z-loss-coeff", "-1"}, 1, "--moe-z-loss-coeff: must be at least 0, got -1"},
      {{"--moe-input-jitter-eps", "-1"}, 1, "--moe-input-jitter-eps: must be at least 0, got -1"},
      {{"--moe-input-jitter-eps", "1"}, 1, "--moe-input-jitter-eps: must be below 1, got 1"},
  });
}

TEST(MoeRules, SinkhornStandsAlone) {
  const std::string sinkhorn = "--moe-router-load-balancing-type sinkhorn: excludes ";
  const Args base{"--moe-router-load-balancing-type", "sinkhorn"};
  const auto with = [&](const Args& more) {
    Args words = experts(base);
    words.insert(words.end(), more.begin(), more.end());
    return mistake(words);
  };
  EXPECT_EQ(with({"--moe-aux-loss-coeff", "0"}), "no error");
  EXPECT_THAT(with({"aux_loss", "--moe-aux-loss-coeff", "0", "0"}),
              HasSubstr(sinkhorn + "other types\n"));
  for (const Args& more : std::vector<Args>{{"--moe-aux-loss-coeff", "1e-2"},
                                            {"--moe-expert-capacity-factor", "1"},
                                            {"--moe-router-enable-expert-bias"}})
    EXPECT_THAT(with(more), HasSubstr(sinkhorn + more[0] + "\n"));
}

TEST(MoeRules, PaddingNeedsACapacity) {
  const char *pad = "--moe-pad-expert-input-to-capacity", *factor = "--moe-expert-capacity-factor";
  expect_mistakes({
      {{pad},
       1,
       "--moe-pad-expert-input-to-capacity: needs --moe-expert-capacity-factor\n  fix: "
       "add --moe-expert-capacity-factor 1"},
  });
  for (const char* type : {"aux_loss", "seq_aux_loss", "global_aux_loss", "none"})
    EXPECT_EQ(mistake(experts({pad, factor, "1", "--moe-router-load-balancing-type", type})),
              "no error")
        << type;
}

TEST(MoeRules, AllAreShownTogether) {
  EXPECT_THAT(mistake(experts({"--moe-router-topk", "9", "--moe-router-group-topk", "3",
                               "--expert-model-parallel-size", "3"}),
                      3),
              AllOf(HasSubstr("3 problems"), HasSubstr("9 is not between 1"),
                    HasSubstr("--moe-router-group-topk: needs"),
                    HasSubstr("8 is no multiple of --expert-model-parallel-size 3")));
}

TEST(MoeRules, WhatIsNotThereSaysWhy) {
  expect_mistakes({
      {{"--moe-enable-routing-replay"}, 1, "routes are neither recorded nor replayed"},
      {{"--moe-router-topk-limited-devices", "2"}, 1, "use --moe-router-num-groups and"},
      {{"--moe-router-force-biased", "1"}, 1, "use --moe-router-force-load-balancing"},
      {{"--moe-expert-rank-capacity-factor", "1"}, 1, "use --moe-expert-capacity-factor"},
      {{"--moe-dispatch-fwd-dtype", "mxfp8"}, 1, "experts compute with 16 bits or more"},
      {{"--moe-mlp-glu-interleave-size", "32"}, 1, "gates before linear units"},
  });
}

std::string notes(const Args& more) { return notes_text(read_run(small(more)).parsed.notes); }

TEST(MoeNotes, FlagsWithoutEffectSaySo) {
  EXPECT_THAT(notes({"--moe-token-dispatcher-type", "alltoall", "--moe-router-dtype", "fp32"}),
              AllOf(HasSubstr("--moe-router-dtype, --moe-token-dispatcher-type"),
                    HasSubstr(": there is no --num-experts")));
  EXPECT_EQ(
      notes(experts({"--moe-token-dispatcher-type", "alltoall", "--moe-router-dtype", "fp32"})),
      "");
  EXPECT_THAT(notes(experts({"--moe-router-num-groups", "2"})),
              HasSubstr("there is no --moe-router-group-topk"));
  EXPECT_THAT(notes(experts({"--moe-router-bias-update-rate", "1"})),
              HasSubstr("there is no --moe-router-enable-expert-bias"));
  EXPECT_THAT(notes(experts({"--moe-token-drop-policy", "position"})),
              HasSubstr("there is no --moe-expert-capacity-factor"));
  EXPECT_THAT(
      notes(experts({"--moe-aux-loss-coeff", "1", "--moe-router-load-balancing-type", "none"})),
      HasSubstr("--moe-aux-loss-coeff: with --moe-router-load-balancing-type none"));
  EXPECT_THAT(notes(experts({"--moe-grouped-gemm", "--moe-permute-fusion", "--moe-router-fusion"})),
              HasSubstr(": it chooses among Megatron-LM's kernels"));
  EXPECT_THAT(notes(experts({"--moe-enable-deepep", "--moe-deepep-num-sms", "20"})),
              AllOf(HasSubstr("--moe-enable-deepep, --moe-deepep-num-sms"),
                    HasSubstr("it tunes how Megatron-LM sends tokens to experts"),
                    Not(HasSubstr("no --num-experts"))));
}

// Values that no flag can have: an architecture from a file.
TEST(MoeRules, HoldForArchitecturesFromFiles) {
  TransformerConfig model;
  model.num_layers = 2;
  model.hidden_size = 8;
  model.num_attention_heads = 2;
  model.vocab_size = 5;
  model.position_embedding_type = PositionEmbedding::rope;
  model.moe.num_experts = 4;
  resolve(model);
  const auto problem = [&](auto change) {
    TransformerConfig changed = model;
    change(changed.moe);
    const Problems problems = validate_model(changed);
    return problems.empty() ? "none" : problems.list().front().what + problems.list().front().got;
  };
  EXPECT_EQ(problem([](MoeConfig&) {}), "none");
  // A trained router computes without a gradient.
  EXPECT_EQ(problem([](MoeConfig& moe) { moe.router_topk = 1; }), "none");
  EXPECT_THAT(problem([](MoeConfig& moe) { moe.router_topk = 0; }),
              HasSubstr("0 is not between 1"));
  EXPECT_THAT(problem([](MoeConfig& moe) { moe.aux_loss_coeff = {-1}; }), HasSubstr("is negative"));
  EXPECT_THAT(problem([](MoeConfig& moe) { moe.z_loss_coeff = -1; }), HasSubstr("is negative"));
  EXPECT_THAT(problem([](MoeConfig& moe) { moe.input_jitter_eps = 1; }),
              HasSubstr("1 is not in [0, 1)"));
}

}  // namespace
}  // namespace megatron
