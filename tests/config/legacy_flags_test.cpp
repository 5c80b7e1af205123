// Compares older and dependent flags, in every order, with the results of Megatron-LM's argument
// code (make_legacy_fixtures.py).
#include "megatron/config/legacy_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/mistake_of.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/field_values.h"
#include "megatron/config/legacy_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Args = std::vector<std::string>;

/// Returns the flags of the run in make_legacy_fixtures.py.
Args small_gpt(const Args& flags) {
  Args words{"gpt"};
  const std::vector<std::pair<std::string, std::string>> base{
      {"--num-layers", "2"},          {"--hidden-size", "64"},
      {"--num-attention-heads", "4"}, {"--seq-length", "32"},
      {"--micro-batch-size", "2"},    {"--max-position-embeddings", "32"},
      {"--train-iters", "10"},        {"--lr", "1e-3"},
      {"--vocab-file", "vocab.json"}, {"--merge-file", "merges.txt"}};
  for (const auto& [flag, value] : base) {
    const std::string alias =
        flag == "--num-layers" ? "--encoder-num-layers" : "--encoder-seq-length";
    const bool is_replaced =
        (flag == "--num-layers" || flag == "--seq-length") && std::ranges::count(flags, alias) > 0;
    if (!is_replaced) words.insert(words.end(), {flag, value});
  }
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

std::string text_of_words(const Args& words) {
  return std::accumulate(
      words.begin(), words.end(), std::string(),
      [](std::string a, const std::string& b) { return std::move(a) + " " + b; });
}

Settings settings_of(const Args& flags) {
  Settings settings = read_run(small_gpt(flags)).options.settings;
  resolve(settings);
  return settings;
}

/// Returns the settings under the names that the fixtures use.
Json described(const Settings& s) {
  const TransformerConfig& m = *s.model;
  Json scaling = Json::array();
  if (m.rope_scaling_type != RopeScaling::none)
    scaling.push_back({write_values(m.rope_scaling_type)[0], m.rope_scaling_factor});
  Json json = {
      {"num_layers", m.num_layers},
      {"seq_length", s.training->seq_length},
      {"global_batch_size", s.training->global_batch_size},
      {"position_embedding_type", write_values(m.position_embedding_type)[0]},
      {"scaling", scaling},
      {"activation", write_values(m.activation)[0]},
      {"gated_linear_unit", m.gated_linear_unit},
      {"ffn_hidden_size", m.ffn_hidden_size},
      {"kv_channels", m.kv_channels},
      {"num_query_groups", m.num_query_groups},
      {"add_bias_linear", m.add_bias_linear},
      {"sequence_parallel", s.parallel->sequence_parallel},
      {"tokenizer_type", s.tokenizer->tokenizer_type},
      {"apply_wd_to_qk_layernorm", s.optimizer->apply_wd_to_qk_layernorm},
      {"accumulate_allreduce_grads_in_fp32", s.training->accumulate_allreduce_grads_in_fp32},
      {"check_for_nan_in_loss_and_grad", s.training->check_for_nan_in_loss_and_grad},
      {"split", nullptr}};
  return json;
}

/// Returns the fractions of a split, normalized as in Megatron-LM.
std::vector<double> normalised(const std::array<double, 3>& shares) {
  const double sum = shares[0] + shares[1] + shares[2];
  return {shares[0] / sum, shares[1] / sum, shares[2] / sum};
}

/// Returns whether --no-position-embedding is combined with no positions or YaRN, which Megatron-LM
/// refuses although the flags do not contradict each other.
bool is_redundant(const Args& flags) {
  const auto has = [&](const char* word) { return std::ranges::count(flags, word) > 0; };
  return has("--no-position-embedding") && (has("none") || has("yarn"));
}

TEST(LegacyFlags, MeanWhatMegatronsArgumentCodeMakesOfThem) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/config/fixtures/legacy_flags.json");
  ASSERT_GT(fixture.size(), 60u);
  for (const Json& example : fixture) {
    const Args flags = example.at("flags").get<Args>();
    SCOPED_TRACE(text_of_words(flags));
    Json expected = example.at("result");
    // Two scalings at once are refused here; Megatron-LM accepts them.
    if (expected.is_null() || expected.at("scaling").size() > 1) {
      if (is_redundant(flags)) continue;
      EXPECT_NE(mistake_of(small_gpt(flags)), "no error");
      continue;
    }
    if (const std::string text = mistake_of(small_gpt(flags)); text != "no error") {
      ADD_FAILURE() << text;
      continue;
    }
    const Settings settings = settings_of(flags);
    // With fp16 the main gradients are fp32 here, but fp16 in Megatron-LM (docs/precision.md).
    if (settings.training->fp16) expected["accumulate_allreduce_grads_in_fp32"] = true;
    const Json split = std::exchange(expected["split"], nullptr);
    if (!split.is_null()) {
      EXPECT_EQ(normalised(*split_weights(settings.data->split)), split.get<std::vector<double>>());
    }
    EXPECT_EQ(described(settings), expected);
  }
}

TEST(LegacyFlags, NoPositionEmbeddingKeepsRotaryPositionsInAnyOrder) {
  for (const Args& flags :
       std::vector<Args>{{"--position-embedding-type", "rope", "--no-position-embedding"},
                         {"--no-position-embedding", "--position-embedding-type", "rope"},
                         {"--use-rotary-position-embeddings", "--no-position-embedding"},
                         {"--no-position-embedding", "--use-rotary-position-embeddings"}}) {
    EXPECT_EQ(settings_of(flags).model->position_embedding_type, PositionEmbedding::rope)
        << text_of_words(flags);
  }
  EXPECT_THAT(mistake_of(small_gpt({"--no-position-embedding"})),
              HasSubstr("add --position-embedding-type rope, or none"));
}

TEST(LegacyFlags, TwoSpellingsOfOneSettingContradictEachOther) {
  for (const Args& flags : std::vector<Args>{
           {"--encoder-num-layers", "3", "--num-layers", "2"},
           {"--num-layers", "2", "--encoder-num-layers", "3"},
           {"--no-check-for-nan-in-loss-and-grad", "--check-for-nan-in-loss-and-grad"},
           {"--swiglu", "--activation", "gelu"},
           {"--activation", "gelu", "--swiglu"},
           {"--gated-linear-unit", "--openai-gelu"},
           {"--swiglu", "--gated-linear-unit=false"},
           {"--save-interval", "2", "--persistent-save-interval", "3"},
           {"--geglu", "--quick-geglu"}}) {
    const std::string text = mistake_of(small_gpt(flags));
    EXPECT_THAT(text, testing::AnyOf(HasSubstr("contradicts"), HasSubstr("excludes")))
        << text_of_words(flags);
  }
  EXPECT_EQ(mistake_of(small_gpt({"--encoder-seq-length", "32"})), "no error");
  EXPECT_EQ(mistake_of(small_gpt({"--swiglu", "--activation", "silu", "--gated-linear-unit"})),
            "no error");
}

// arguments.py of v1.0 and v2.6: whole layers, in groups of --checkpoint-num-layers, or as
// --activations-checkpoint-method says.
TEST(LegacyFlags, CheckpointedActivationsAreWholeLayers) {
  const auto recompute = [](const Args& flags) { return settings_of(flags).memory->recompute; };
  EXPECT_EQ(recompute({"--checkpoint-activations"}).recompute_granularity, "full");
  EXPECT_EQ(recompute({"--checkpoint-activations=false"}).recompute_granularity, "");
  const auto block = recompute(
      {"--activations-checkpoint-method", "block", "--activations-checkpoint-num-layers", "2"});
  EXPECT_EQ(block.recompute_granularity, "full");
  EXPECT_EQ(block.recompute_method, "block");
  EXPECT_EQ(block.recompute_num_layers, 2);
  EXPECT_EQ(recompute({"--activation-checkpoint-interval", "2"}).recompute_num_layers, 2);
  EXPECT_EQ(recompute({"--activation-checkpoint-interval", "0"}).recompute_granularity, "");
  EXPECT_EQ(recompute({"--recompute-granularity", "partial"}).recompute_granularity, "selective");
  EXPECT_EQ(mistake_of(small_gpt({"--activations-checkpoint-method", "even"})),
            "--activations-checkpoint-method: must be one of uniform, block, got 'even'");
  EXPECT_THAT(
      mistake_of(small_gpt({"--checkpoint-activations", "--recompute-granularity", "selective"})),
      HasSubstr("--checkpoint-activations: contradicts --recompute-granularity"));
}

TEST(LegacyFlags, NamesOfTheFirstReleaseAreNoted) {
  Args words = small_gpt({"--batch-size", "2", "--warmup", ".1", "--model-parallel-size", "1"});
  words.erase(std::ranges::find(words, "--micro-batch-size"),
              std::ranges::find(words, "--micro-batch-size") + 2);
  const auto run = read_run(words);
  EXPECT_EQ(run.options.settings.training->micro_batch_size, 2);
  EXPECT_EQ(run.options.settings.scheduler->lr_warmup_fraction, .1);
  EXPECT_THAT(notes_text(run.parsed.notes),
              HasSubstr("note: --batch-size: is an older name of --micro-batch-size\n"));
}

// megatron/post_training/model_builder.py, which builds the model with --modelopt-enabled.
TEST(LegacyFlags, EnableGptOssGivesItsYarn) {
  const Settings yarn = settings_of({"--enable-gpt-oss", "--modelopt-enabled"});
  EXPECT_EQ(yarn.model->position_embedding_type, PositionEmbedding::yarn);
  EXPECT_EQ(yarn.model->rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(yarn.model->rope_scaling_factor, 32);
  EXPECT_EQ(yarn.model->rope_original_max_position_embeddings, 131072);
  EXPECT_EQ(yarn.model->yarn_mscale, 1);
  EXPECT_FALSE(yarn.model->yarn_correction_range_round_to_int);
  const auto plain = read_run(small_gpt({"--enable-gpt-oss", "--position-embedding-type", "rope"}));
  EXPECT_EQ(plain.options.settings.model->rope_scaling_type, RopeScaling::none);
  EXPECT_THAT(notes_text(plain.parsed.notes), HasSubstr("there is no --modelopt-enabled"));
  EXPECT_THAT(mistake_of(small_gpt(
                  {"--enable-gpt-oss", "--modelopt-enabled", "--position-embedding-type", "rope"})),
              HasSubstr("contradicts --position-embedding-type"));
}

// rotary_pos_embedding.py of Pai-Megatron-Patch divides positions by the factor; a window of
// Hugging Face's Mistral has this many keys.
TEST(LegacyFlags, OfForksSetWhatTheyStandFor) {
  const Settings pai = settings_of({"--use-llama2-rotary-position-embeddings",
                                    "--rotary-scale-factor", "2", "--sliding-window", "16"});
  EXPECT_EQ(pai.model->position_embedding_type, PositionEmbedding::rope);
  EXPECT_EQ(pai.model->rope_scaling_type, RopeScaling::linear);
  EXPECT_EQ(pai.model->rope_scaling_factor, 2);
  EXPECT_EQ(pai.model->window_size, (IntegerPair{15, 0}));
  EXPECT_THAT(mistake_of(small_gpt({"--sliding-window", "wide"})), HasSubstr("--sliding-window: "));
  const Settings timed = settings_of({"--enable-ft-pipeline", "--ft-timeout", "300"});
  EXPECT_TRUE(timed.fault_tolerance->enable_ft_package);
  EXPECT_EQ(timed.fault_tolerance->ft_rank_section_timeouts,
            "setup:300,step:300,checkpointing:300");
  EXPECT_EQ(timed.fault_tolerance->ft_rank_out_of_section_timeout, 300);
}

// Megatron-FSDP's policy of mixed precision is read with --use-megatron-fsdp alone.
TEST(LegacyFlags, MainGradientsOfMegatronFsdpHaveAType) {
  const Args fsdp{"--use-megatron-fsdp", "--bf16", "--megatron-fsdp-grad-comm-dtype", "bf16",
                  "--megatron-fsdp-main-grads-dtype"};
  const auto in_bf16 = [&](const char* type) {
    Args flags = fsdp;
    flags.emplace_back(type);
    return settings_of(flags).training->grad_reduce_in_bf16;
  };
  EXPECT_TRUE(in_bf16("bf16"));
  EXPECT_FALSE(in_bf16("fp32"));
  EXPECT_FALSE(in_bf16("auto"));
  const auto run = read_run(small_gpt({"--bf16", "--megatron-fsdp-main-grads-dtype", "bf16"}));
  EXPECT_FALSE(run.options.settings.training->grad_reduce_in_bf16);
  EXPECT_THAT(notes_text(run.parsed.notes), HasSubstr("there is no --use-megatron-fsdp"));
}

// build_pretrain_dataset_from_idxmap() of Pai-Megatron-Patch divides --train-data-path by --split.
TEST(LegacyFlags, ASplitDividesTheOnlyDataOfTraining) {
  const auto paths = [](const Args& flags) {
    const DataConfig data = *settings_of(flags).data;
    return std::pair(data.data_path, data.train_data_path);
  };
  const Args a{"a"}, none;
  EXPECT_EQ(paths({"--train-data-path", "a", "--split", "98,2,0"}), std::pair(a, none));
  EXPECT_EQ(paths({"--train-data-path", "a", "--data-path", "a", "--split", "98,2,0"}),
            std::pair(a, none));
  EXPECT_EQ(paths({"--train-data-path", "a"}), std::pair(none, a));
  EXPECT_EQ(
      mistake_of(small_gpt({"--train-data-path", "a", "--data-path", "b", "--split", "1,0,0"}))
          .substr(0, 5),
      "data:");
}

TEST(LegacyFlags, ALevelOfOneRankLeavesTheOtherExchange) {
  const auto type = [](const char* heads, const char* ring) {
    const auto run =
        read_run(small_gpt({"--context-parallel-size", "2", "--cp-comm-type", "a2a+p2p",
                            "--hierarchical-context-parallel-sizes", heads, ring}),
                 2);
    return run.options.settings.parallel->cp_comm_type;
  };
  EXPECT_EQ(type("2", "1"), std::vector{CpCommType::a2a});
  EXPECT_EQ(type("1", "2"), std::vector{CpCommType::p2p});
}

// yaml_arguments.py: swiglu is SiLU with a gate, whatever gated_linear_unit says.
TEST(LegacyFlags, MembersOfMegatronCoresClassesNameSettings) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "run.yaml",
                        "language_model:\n  activation_func: swiglu\n  gated_linear_unit: False\n");
  const Settings s =
      settings_of({"--yaml-cfg", folder / "run.yaml", "--layernorm-epsilon", "1e-6",
                   "--layernorm-zero-centered-gamma=true", "--grad-reduce-in-fp32=true",
                   "--num-moe-experts", "4", "--bucket-size", "9"});
  EXPECT_EQ(s.model->activation, Activation::silu);
  EXPECT_TRUE(s.model->gated_linear_unit);
  EXPECT_EQ(s.model->norm_epsilon, 1e-6);
  EXPECT_TRUE(s.model->apply_layernorm_1p);
  EXPECT_TRUE(s.training->accumulate_allreduce_grads_in_fp32);
  EXPECT_EQ(s.model->moe.num_experts, 4);
  EXPECT_EQ(s.parallel->ddp_bucket_size, 9);
  EXPECT_EQ(settings_of({"--activation-func", "squaredrelu"}).model->activation,
            Activation::squared_relu);
}

TEST(LegacyFlags, AnotherFamilyIsOneProblem) {
  EXPECT_EQ(
      mistake_of({"retro", "--num-layers", "0", "--retro-add-retriever", "--img", "x"}),
      "model: must be one of gpt, hybrid, bert, t5, got 'retro'\n  fix: models of other families, "
      "such as vlm, are not in this version; ict, realm and retro were removed from Megatron-LM; "
      "hybrid trains layers in the order of a pattern, as pretrain_mamba.py does");
}

TEST(LegacyFlags, TheLastOfARepeatedFlagCountsAndIsNoted) {
  const auto run = read_run(small_gpt({"--lr", "1e-4", "--seed", "3", "--seed", "3"}));
  EXPECT_EQ(run.options.settings.scheduler->lr, 1e-4);
  EXPECT_THAT(notes_text(run.parsed.notes),
              HasSubstr("note: --lr 1e-4: is given more than once: the last value counts"));
  EXPECT_THAT(notes_text(run.parsed.notes), Not(HasSubstr("--seed")));
}

TEST(LegacyFlags, AFlagWinsOverAFileWhicheverOfThemIsLegacy) {
  const auto run = read_run(small_gpt({"--activation", "gelu", "--gated-linear-unit=false"}));
  EXPECT_EQ(run.options.settings.model->activation, Activation::gelu);
  Settings settings;
  settings.legacy->swiglu = true;
  settings.model->activation = Activation::relu;
  ParseResult parsed;
  parsed.origins["swiglu"] = {Origin::Kind::file, "run.yaml:3: swiglu"};
  parsed.origins["activation"] = {Origin::Kind::flag, "--activation"};
  Problems problems;
  translate_legacy_flags(settings, parsed, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(settings.model->activation, Activation::relu);

  Settings scaled;
  scaled.legacy->use_rope_scaling = true;
  scaled.legacy->rotary_seq_len_interpolation_factor = 2;
  ParseResult origins;
  origins.origins["use_rope_scaling"] = {Origin::Kind::file, "run.yaml:1: use_rope_scaling"};
  origins.origins["rotary_seq_len_interpolation_factor"] = {
      Origin::Kind::flag, "--rotary-seq-len-interpolation-factor"};
  translate_legacy_flags(scaled, origins, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(scaled.model->rope_scaling_type, RopeScaling::linear);
  EXPECT_EQ(scaled.model->rope_scaling_factor, 2);
}

}  // namespace
}  // namespace megatron
