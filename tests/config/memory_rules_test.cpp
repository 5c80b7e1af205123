// Tests the rules on recomputation, offload and memory budgets, with their whole messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kPlanFix =
    "\n  fix: write one for each layer, such as full*4,layernorm+mlp*20,none";

TEST(ActivationPlanRules, AMistakeNamesItsItem) {
  const char* plan = "--activation-plan";
  const std::string item_1 = "--activation-plan: item 1 of ", item_2 = "--activation-plan: item 2 ";
  expect_all({
      {{plan, "full,ful"},
       1,
       item_2 + "of 'full,ful': 'ful' is not one of none, full, layernorm, mlp, moe, " +
           "shared_experts, mla_up_proj, offload" + kPlanFix},
      {{plan, "full,"}, 1, item_2 + "of 'full,': is empty" + kPlanFix},
      {{plan, "mlp+mlp,none"}, 1, item_1 + "'mlp+mlp,none': 'mlp' is given twice" + kPlanFix},
      {{plan, "none,none+mlp"},
       1,
       item_2 + "of 'none,none+mlp': 'none' cannot be combined with other words" + kPlanFix},
      {{plan, "none,full+mlp"},
       1,
       item_2 + "of 'none,full+mlp': 'full+mlp' names parts of a layer that full recomputes " +
           "anyway" + kPlanFix},
      {{plan, "full*two"}, 1, item_1 + "'full*two': 'two' is not a number of layers" + kPlanFix},
      {{plan, "full*100001"},
       1,
       item_1 + "'full*100001': makes more than 100000 layers" + kPlanFix},
      {{plan, "full*3"},
       1,
       "--activation-plan: 'full*3' is for 3 layers, the model has 2" + kPlanFix},
      {{plan, ""}, 1, "--activation-plan: must not be empty\n  fix: write none, or leave it out"},
  });
}

TEST(ActivationPlanRules, PlansAndOtherFlagsAreNotMixed) {
  const char *plan = "--activation-plan", *budget = "--memory-budget";
  const std::string says = ": says what layers recompute and offload, and excludes ";
  expect_all({
      {{plan, "full*2", budget, "1GB"},
       1,
       "--activation-plan: is what --memory-budget chooses, which would replace it\n  fix: give "
       "one of the two"},
      {{plan, "full*2", "--recompute-activations", "--recompute-num-layers", "1"},
       1,
       plan + says +
           "--recompute-activations, --recompute-num-layers\n  fix: leave "
           "--recompute-activations, --recompute-num-layers out"},
      {{plan, "full*2", "--cpu-offloading", "--offload-folder", "x"},
       1,
       "--activation-plan: says what layers recompute and offload, and excludes --cpu-offloading\n"
       "  fix: leave --cpu-offloading out"},
      {{budget, "1GB", "--distribute-saved-activations", "--fine-grained-activation-offloading",
        "--offload-modules", "mlp", "--offload-folder", "x"},
       1,
       budget + says + "--distribute-saved-activations, --fine-grained-activation-offloading"},
      {{budget, "1GB", "--recompute-modules", "mlp", "--recompute-layers", "[1]*2",
        "--recompute-method", "block", "--distribute-saved-activations", "--moe-layer-recompute",
        "--num-experts", "2", "--recompute-granularity", "full", "--cpu-offloading-num-layers",
        "1"},
       1,
       budget + says +
           "--recompute-granularity full, --moe-layer-recompute, --recompute-modules, "
           "--recompute-layers, --recompute-method, --distribute-saved-activations, "
           "--cpu-offloading-num-layers"},
  });
}

TEST(MemoryBudgetRules, ABudgetIsASize) {
  const char* budget = "--memory-budget";
  const std::string no_size = "' is not a size of memory\n  fix: write 20GB, 512MiB or auto";
  expect_all({
      {{budget, ""}, 1, "--memory-budget: must not be empty"},
      {{budget, "0x10GB"}, 1, "--memory-budget: '0x10GB" + no_size},
      {{budget, "many"}, 1, "--memory-budget: 'many" + no_size},
      {{budget, "99999999999999999999"}, 1, "--memory-budget: '99999999999999999999" + no_size},
  });
  EXPECT_EQ(mistake({budget, "AUTO"}), "no error");
}

TEST(MemoryBudgetRules, TheMicroBatchIsChosenForOneBatchSize) {
  const auto without_size = [](const Args& more) {
    Args words = small({"--memory-budget", "1GB"});
    words.erase(std::ranges::find(words, "--micro-batch-size"),
                std::ranges::find(words, "--micro-batch-size") + 2);
    words.insert(words.end(), more.begin(), more.end());
    return mistake_of(words);
  };
  EXPECT_EQ(without_size({"--global-batch-size", "4"}), "no error");
  EXPECT_THAT(without_size({"--global-batch-size", "4", "--rampup-batch-size", "2", "2", "8"}),
              HasSubstr("--memory-budget: chooses the micro-batch size only for batches of one "
                        "size, and this run's grow\n  fix: add --micro-batch-size"));
}

TEST(RecomputeRules, PartsAndWholeLayersExcludeEachOther) {
  const char *granularity = "--recompute-granularity", *modules = "--recompute-modules";
  expect_all({
      {{granularity, "full", modules, "mlp"},
       1,
       "--recompute-modules: excludes --recompute-granularity full, which recomputes whole "
       "layers\n  fix: leave --recompute-modules out, or write --recompute-granularity "
       "selective"},
      {{modules, "mlp"},
       1,
       "--recompute-modules: needs --recompute-granularity selective\n  fix: add "
       "--recompute-granularity selective"},
      {{granularity, "full", "--recompute-num-layers", "3"},
       1,
       "--recompute-num-layers: 3 is above --num-layers 2\n  fix: give at most the layers of a "
       "pipeline stage"},
      {{granularity, "selective", "--recompute-num-layers", "1"},
       1,
       "--recompute-num-layers: excludes --recompute-granularity selective"},
      {{"--recompute-activations", "--recompute-method", "block"},
       1,
       "--recompute-method: excludes --recompute-activations\n  fix: give one of the two"},
      {{"--recompute-layers", "[1]*2"},
       1,
       "--recompute-layers: needs --recompute-granularity full or selective\n  fix: add "
       "--recompute-granularity full or selective, or leave --recompute-layers out"},
      {{granularity, "full", "--recompute-layers", "[1]*3"},
       1,
       "--recompute-layers: '[1]*3' does not list 0 or 1 for each of the 2 layers"},
      {{granularity, "selective", modules, "mhc"},
       1,
       "--recompute-modules: gdn_norm_out, gdp_in_proj, gdp_qkv and mhc are parts of layers that "
       "are not in this version"},
      {{granularity, "selective", modules, "mla_up_proj"},
       1,
       "--recompute-modules mla_up_proj: is a part of multi-latent attention\n  fix: add "
       "--multi-latent-attention, or leave it out"},
      {{"--activation-plan", "none,mla_up_proj"},
       1,
       "--activation-plan: 'mla_up_proj' recomputes mla_up_proj, and the model has no multi-latent "
       "attention"},
  });
}

// Without --num-layers the checkpoint says how many there are.
TEST(RecomputeRules, NumbersOfLayersAreThoseOfTheLoadedModel) {
  const auto mistake_of_loaded = [](const Args& flags) {
    Args words = small({"--load", "ckpt"});
    words.erase(words.begin() + 1, words.begin() + 3);  // --num-layers 2
    words.insert(words.end(), flags.begin(), flags.end());
    Settings settings = read_run(words).options.settings;
    settings.model->num_layers = 2;
    resolve(settings);
    return message_of([&] { validate_model(settings).throw_if_any(); });
  };
  const Args full{"--recompute-granularity", "full"};
  const auto with_full = [&](const char* flag, const char* value) {
    return mistake_of_loaded({full[0], full[1], flag, value});
  };
  EXPECT_EQ(with_full("--recompute-layers", "[1,0]"), "no error");
  EXPECT_THAT(with_full("--recompute-layers", "[1,0,1]"), HasSubstr("each of the 2 layers"));
  EXPECT_THAT(with_full("--recompute-num-layers", "3"), HasSubstr("3 is above --num-layers 2"));
  EXPECT_THAT(mistake_of_loaded({"--activation-plan", "full*4"}),
              HasSubstr("is for 4 layers, the model has 2"));
  EXPECT_THAT(mistake_of_loaded({"--cpu-offloading-num-layers", "3"}),
              HasSubstr("3 is above --num-layers 2"));
}

TEST(RecomputeRules, SlicesNeedTensorParallelism) {
  const char* slices = "--distribute-saved-activations";
  const Args full{"--recompute-granularity", "full", slices};
  const auto with = [&](const Args& more) {
    Args words = full;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string flag = "--distribute-saved-activations: ";
  expect_all({
      {{slices}, 1, flag + "needs --recompute-granularity full\n  fix: add"},
      {full, 1, flag + "needs --tensor-model-parallel-size above 1\n  fix: leave"},
      {with({"--tensor-model-parallel-size", "2", "--sequence-parallel"}), 2,
       flag + "excludes --sequence-parallel, which keeps slices\n  fix: leave"},
  });
  EXPECT_EQ(mistake(with({"--tensor-model-parallel-size", "2"}), 2), "no error");
}

TEST(RecomputeRules, PartsOfExpertsNeedExperts) {
  const char* modules = "--recompute-modules";
  const Args selective{"--recompute-granularity", "selective", modules};
  const auto with = [&](const Args& more) {
    Args words = selective;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_all({
      {{"--moe-layer-recompute"},
       1,
       "--moe-layer-recompute: needs a model with experts\n  fix: leave it out, or add "
       "--num-experts"},
      {with({"moe"}), 1,
       "--recompute-modules: moe, moe_act and shared_experts need a model with experts\n  fix: use "
       "mlp, or add --num-experts"},
      {with({"shared_experts", "--num-experts", "2"}), 1,
       "--recompute-modules shared_experts: the model has no shared experts"},
      {{"--activation-plan", "none,mlp+moe"},
       1,
       "--activation-plan: 'mlp+moe' recomputes moe, and the model has no experts\n  fix: use mlp, "
       "or add the flags of what it names"},
      {{"--activation-plan", "shared_experts*2", "--num-experts", "2"},
       1,
       "--activation-plan: 'shared_experts' recomputes shared_experts, and the model has no shared "
       "experts"},
  });
}

TEST(RecomputeRules, MistakesAreShownTogether) {
  const std::string text = mistake({"--recompute-granularity", "selective", "--recompute-modules",
                                    "mhc", "moe", "--activation-plan", "full,ful"});
  EXPECT_THAT(
      text, AllOf(HasSubstr("4 problems"), HasSubstr("gdn_norm_out, gdp_in_proj"),
                  HasSubstr("and excludes --recompute-granularity selective, --recompute-modules"),
                  HasSubstr("item 2 of 'full,ful': 'ful' is not one of"),
                  HasSubstr("moe, moe_act and shared_experts need a model with experts")));
}

// Megatron Core's configuration checks and uses both only with a granularity.
TEST(RecomputeNotes, AMethodAloneIsIgnored) {
  const auto run = read_run(
      small({"--recompute-method", "uniform", "--activations-checkpoint-num-layers", "2"}));
  EXPECT_EQ(
      notes_text(run.parsed.notes),
      "accepted without effect:\n  --recompute-method, --activations-checkpoint-num-layers: as "
      "in Megatron-LM: there is no --recompute-granularity full\n");
  EXPECT_EQ(run.options.settings.memory->recompute.recompute_granularity, "");
}

// As validate_args() of Megatron-LM does.
TEST(RecomputeNotes, RecomputedActivationsReplaceFull) {
  const auto run = read_run(small({"--recompute-activations", "--recompute-granularity", "full"}));
  EXPECT_EQ(notes_text(run.parsed.notes),
            "note: --recompute-activations: replaces full by selective\n");
  EXPECT_EQ(run.options.settings.memory->recompute.recompute_granularity, "selective");
  EXPECT_THAT(mistake({"--recompute-activations", "--recompute-granularity", "full",
                       "--recompute-method", "block"}),
              ::testing::HasSubstr("--recompute-method: excludes"));
}

TEST(RecomputeNotes, OneMicrobatchIsInFlightWithoutAPipeline) {
  const Args words = small({"--num-microbatches-with-partial-activation-checkpoints", "1"});
  EXPECT_TRUE(read_run(words).parsed.notes.contains(
      "without effect: one microbatch is in flight without a pipeline"));
}

TEST(OffloadRules, SomethingMustBeOffloaded) {
  expect_all({
      {{"--offload-folder", ""}, 1, "--offload-folder: must not be empty"},
      {{"--offload-folder", "x"},
       1,
       "--offload-folder: has no effect: nothing is offloaded\n  fix: add --cpu-offloading, "
       "--optimizer-cpu-offload or --memory-budget, or leave --offload-folder out"},
      {{"--offload-folder", "x", "--activation-plan", "full*2"},
       1,
       "--offload-folder: has no effect: nothing is offloaded\n  fix: add offload to a layer of "
       "--activation-plan, or leave --offload-folder out"},
      {{"--no-cpu-offloading-activations", "--cpu-offloading", "--offload-folder", "x"},
       1,
       "--no-cpu-offloading-activations: leaves --cpu-offloading nothing to offload"},
      {{"--cpu-offloading-num-layers", "3", "--offload-folder", "x"},
       1,
       "--cpu-offloading-num-layers: 3 is above --num-layers 2\n  fix: give at most the layers of "
       "a "
       "pipeline stage, or --cpu-offloading for all"},
  });
}

TEST(OffloadRules, FlagsAskForEachOther) {
  const std::string weights = "--cpu-offloading-weights";
  expect_all({
      {{"--fine-grained-activation-offloading", "--offload-folder", "x"},
       1,
       "--fine-grained-activation-offloading: names no part of a layer\n  fix: add "
       "--offload-modules"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "mlp", "--cpu-offloading",
        "--offload-folder", "x"},
       1,
       "--fine-grained-activation-offloading: offloads parts of layers, and --cpu-offloading whole "
       "layers\n  fix: choose one of them"},
      {{weights, "--cpu-offloading", "--offload-folder", "x"},
       1,
       weights + ": is for weights of 16 bits: those of 32 bits are the optimizer's main weights"},
      {{"--bf16", weights, "--cpu-offloading", "--offload-folder", "x", "--zero-stage", "2"},
       2,
       weights + ": with --zero-stage 2 needs sharded weights: otherwise every update gathers all "
                 "weights in memory\n  fix: use --zero-stage 3, or leave --zero-stage 2 out"},
  });
}

}  // namespace
}  // namespace megatron
