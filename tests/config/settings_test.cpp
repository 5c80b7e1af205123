// Tests the settings of a run: derived values, rules and their dump.
#include "megatron/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "config/mistake_of.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/print_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Args = std::vector<std::string>;

const Args kSmall{"gpt",
                  "--num-layers",
                  "2",
                  "--hidden-size",
                  "64",
                  "--num-attention-heads",
                  "4",
                  "--seq-length",
                  "32",
                  "--train-iters",
                  "10",
                  "--lr",
                  "1e-3",
                  "--micro-batch-size",
                  "2",
                  "--tokenizer-type",
                  "NullTokenizer",
                  "--vocab-size",
                  "100"};

Args small(const Args& more) {
  Args words = kSmall;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

megatron::RunConfig run(const Args& more) { return read_run(small(more)); }

Settings resolved(const Args& more) {
  Settings settings = run(more).options.settings;
  resolve(settings);
  return settings;
}

TEST(RunSettings, DefaultsAreMegatrons) {
  const Settings s = resolved({});
  EXPECT_EQ(s.model->ffn_hidden_size, 256);
  EXPECT_EQ(s.model->kv_channels, 16);
  EXPECT_EQ(s.model->num_query_groups, 4);
  EXPECT_EQ(s.model->max_position_embeddings, 32);
  EXPECT_EQ(s.model->vocab_size, 100);
  EXPECT_EQ(s.training->global_batch_size, 2);
  EXPECT_TRUE(s.data->mock_data);
  EXPECT_EQ(s.data->split, "1,1,1");
  EXPECT_EQ(resolved({"--data-path", "p"}).data->split, "969, 30, 1");
  EXPECT_FALSE(resolved({"--data-path", "p"}).data->mock_data);
}

/// A default of ours that is not Megatron's.
struct OtherDefault {
  std::vector<std::string> values;
  const char* why;
};

const std::map<std::string, OtherDefault>& other_defaults() {
  static const std::map<std::string, OtherDefault> all{
      {"rope_original_max_position_embeddings",
       {{"8192"}, "RotaryEmbedding's own for llama3; resolve() gives YaRN its 4096"}},
      {"yarn_beta_fast", {{"32"}, "YarnRotaryEmbedding's own"}},
      {"yarn_beta_slow", {{"1"}, "YarnRotaryEmbedding's own"}},
      {"yarn_correction_range_round_to_int", {{"true"}, "YarnRotaryEmbedding's own"}},
      {"rotary_scaling_factor", {{}, "Megatron's 1 is of multi-latent attention"}},
      {"dataloader_type", {{"single"}, "what validate_args() makes of None"}},
      {"save_optim", {{"true"}, "--no-save-optim is None: not given"}},
      {"save_rng", {{"true"}, "--no-save-rng is None: not given"}},
      {"load_optim", {{"true"}, "--no-load-optim is None: not given"}},
      {"data_parallel_sharding_strategy",
       {{}, "Megatron's has an effect with --use-megatron-fsdp only"}},
      {"load_rng", {{"true"}, "--no-load-rng is None: not given"}},
      {"experimental_attention_variant", {{"none"}, "None: no variant"}},
      {"num_classes", {{"0"}, "Megatron's 1000 is of vision models"}},
  };
  return all;
}

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// A default of Megatron's parser as the values of a field.
std::vector<std::string> values_of(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_boolean()) return {value.get<bool>() ? "true" : "false"};
  if (value.is_number_integer()) return {std::to_string(value.get<std::int64_t>())};
  if (value.is_number()) return {number_text(value.get<double>())};
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> values;
  for (const Json& item : value) values.push_back(values_of(item).at(0));
  return values;
}

/// The flag of Megatron's that gives the field; empty when it has none.
std::string megatron_flag(const Field& field, const Json& defaults) {
  std::vector<std::string> flags{field.flag()};
  for (const std::string& alias : field.aliases) flags.push_back("--" + alias);
  for (const std::string& off : field.off_flags) flags.push_back("--" + off);
  for (const std::string& flag : flags)
    if (defaults.contains(flag)) return flag;
  return "";
}

/// Numbers are equal in value; where Megatron has None, a number of ours may be 0.
bool are_equal(const std::vector<std::string>& ours, const std::vector<std::string>& megatrons) {
  if (megatrons.empty() && ours.size() == 1) return ours[0] == "0";
  return std::ranges::equal(ours, megatrons, [](const std::string& x, const std::string& y) {
    return is_number(x) && is_number(y) ? number_value(x) == number_value(y) : x == y;
  });
}

// fixtures/megatron_defaults.json: what Megatron-LM's own parser gives for each flag.
TEST(RunSettings, EveryDefaultIsThatOfMegatronsParser) {
  const Json defaults = parse_json(
      read_file(MEGATRON_SOURCE_DIR "/tests/config/fixtures/megatron_defaults.json"), "defaults");
  int compared = 0;
  std::set<std::string> others;
  for (const Field& field : settings_table().set().fields) {
    if (field.is_hidden || field.is_refused) continue;
    const std::string flag = megatron_flag(field, defaults);
    if (flag.empty()) continue;
    ++compared;
    if (other_defaults().contains(field.name)) {
      const OtherDefault& other = other_defaults().at(field.name);
      others.insert(field.name);
      EXPECT_EQ(field.default_values, other.values) << field.flag() << ": " << other.why;
      EXPECT_FALSE(are_equal(field.default_values, values_of(defaults.at(flag)))) << field.flag();
    } else {
      EXPECT_TRUE(are_equal(field.default_values, values_of(defaults.at(flag))))
          << field.flag() << ": ours is " << join_values(field.default_values) << ", Megatron's "
          << flag << " is " << defaults.at(flag);
    }
  }
  EXPECT_GT(compared, 170);

  EXPECT_EQ(others.size(), other_defaults().size()) << "a listed setting is gone";
}

TEST(RunSettings, GatedMlpsGetMegatronsWidth) {
  // int(8·h/3/64)·64
  EXPECT_EQ(resolved({"--swiglu", "--hidden-size", "512"}).model->ffn_hidden_size, 1344);
  EXPECT_EQ(resolved({"--swiglu", "--hidden-size", "4096"}).model->ffn_hidden_size, 10880);
  EXPECT_EQ(resolved({"--swiglu", "--ffn-hidden-size", "100"}).model->ffn_hidden_size, 100);
}

TEST(RunSettings, ActivationSwitches) {
  const auto activation = [](const char* flag) { return *resolved({flag}).model; };
  EXPECT_TRUE(activation("--swiglu").activation == Activation::silu &&
              activation("--swiglu").gated_linear_unit);
  EXPECT_TRUE(activation("--geglu").activation == Activation::gelu &&
              activation("--geglu").gated_linear_unit);
  EXPECT_TRUE(activation("--quick-geglu").activation == Activation::quick_gelu &&
              activation("--quick-geglu").gated_linear_unit);
  EXPECT_TRUE(activation("--squared-relu").activation == Activation::squared_relu &&
              !activation("--squared-relu").gated_linear_unit);
  EXPECT_EQ(activation("--openai-gelu").activation, Activation::gelu_tanh);
  EXPECT_THAT(mistake_of(small({"--swiglu", "--squared-relu"})),
              HasSubstr("--squared-relu: excludes --swiglu"));
}

TEST(RunSettings, GatesOfGptOss) {
  const TransformerConfig plain = *resolved({"--quick-geglu"}).model;
  EXPECT_FALSE(plain.activation_func_clamp_value);
  EXPECT_EQ(plain.glu_linear_offset, 0);
  const TransformerConfig model = *resolved({"--quick-geglu", "--activation-func-clamp-value",
                                             "7.0", "--glu-linear-offset", "1.0"})
                                       .model;
  EXPECT_EQ(model.activation_func_clamp_value, 7);
  EXPECT_EQ(model.glu_linear_offset, 1);
  EXPECT_EQ(resolved({"--swiglu", "--num-experts", "4", "--activation-func-clamp-value", "10"})
                .model->activation_func_clamp_value,
            10);
}

/// Megatron-LM has a clamp for quick-GEGLU and, with experts, for SwiGLU, and an offset for
/// quick-GEGLU.
TEST(RunSettings, WrongGatesAreRefused) {
  const auto mistake = [](const Args& more) { return mistake_of(small(more)); };
  const std::string clamp = "--activation-func-clamp-value", offset = "--glu-linear-offset";
  for (const char* activation : {"--swiglu", "--geglu", "--squared-relu", "--openai-gelu"}) {
    EXPECT_THAT(mistake({activation, clamp, "7"}), HasSubstr(clamp + ": needs ")) << activation;
    EXPECT_THAT(mistake({activation, offset, "1"}),
                HasSubstr(offset + " 1: needs --quick-geglu\n  fix: add --quick-geglu"))
        << activation;
  }
  EXPECT_THAT(mistake({"--geglu", "--num-experts", "4", clamp, "7"}),
              HasSubstr(clamp + ": needs --quick-geglu, or --swiglu with layers of experts"));
  EXPECT_THAT(mistake({"--swiglu", clamp, "7"}), HasSubstr("or --swiglu with layers of experts"));
  EXPECT_THAT(mistake({"--swiglu", clamp, "7", "--num-experts", "4", "--moe-layer-freq", "[0]*2"}),
              HasSubstr("or --swiglu with layers of experts"));
  EXPECT_THAT(mistake({"--quick-geglu", clamp, "0"}), HasSubstr("must be above 0, got 0"));
  EXPECT_THAT(mistake({"--quick-geglu", clamp, "inf"}), HasSubstr(clamp));
  for (const Args& good : {Args{"--swiglu", clamp, "None", offset, "0"}, Args{offset, "0.0"},
                           Args{"--swiglu", clamp, "7", "--num-experts", "4"}})
    EXPECT_EQ(mistake(good), "no error");
}

TEST(RunSettings, SpellingsOfMegatron) {
  EXPECT_FALSE(resolved({"--disable-bias-linear"}).model->add_bias_linear);
  EXPECT_EQ(resolved({"--use-rotary-position-embeddings"}).model->position_embedding_type,
            PositionEmbedding::rope);
  EXPECT_EQ(resolved({"--position-embedding-type", "alibi"}).model->position_embedding_type,
            PositionEmbedding::alibi);
  EXPECT_EQ(resolved({"--position-embedding-type", "rope", "--use-rope-scaling"})
                .model->rope_scaling_type,
            RopeScaling::llama3);
  const auto linear =
      *resolved({"--position-embedding-type", "rope", "--rotary-seq-len-interpolation-factor", "4"})
           .model;
  EXPECT_TRUE(linear.rope_scaling_type == RopeScaling::linear && linear.rope_scaling_factor == 4);
  const auto yarn = *resolved({"--position-embedding-type", "yarn", "--rotary-scaling-factor", "4",
                               "--no-yarn-correction-range-round-to-int"})
                         .model;
  EXPECT_TRUE(yarn.rope_scaling_type == RopeScaling::yarn && yarn.rope_scaling_factor == 4 &&
              !yarn.yarn_correction_range_round_to_int);
  EXPECT_EQ(yarn.rope_original_max_position_embeddings, 4096);
  EXPECT_EQ(resolved({"--position-embedding-type", "yarn",
                      "--yarn-original-max-position-embeddings", "8192"})
                .model->rope_original_max_position_embeddings,
            8192);
  EXPECT_TRUE(resolved({"--override-opt_param-scheduler"}).scheduler->override_opt_param_scheduler);
  EXPECT_TRUE(resolved({"--override-opt-param-scheduler"}).scheduler->override_opt_param_scheduler);
  const auto checkpoint = *resolved({"--no-save-optim", "--no-save-rng", "--no-load-optim",
                                     "--no-load-rng", "--persistent-save-interval", "7"})
                               .checkpoint;
  EXPECT_FALSE(checkpoint.save_optim || checkpoint.save_rng || checkpoint.load_optim ||
               checkpoint.load_rng);
  EXPECT_EQ(checkpoint.save_interval, 7);
  EXPECT_FALSE(
      resolved({"--no-check-for-nan-in-loss-and-grad"}).training->check_for_nan_in_loss_and_grad);
  EXPECT_FALSE(resolved({"--no-mmap-bin-files"}).data->mmap_bin_files);
  EXPECT_EQ(resolved({"--lr-decay-style", "inverse-square-root"}).scheduler->lr_decay_style,
            LrDecayStyle::inverse_square_root);
  EXPECT_THAT(resolved({"--data-path", "0.3", "a", "0.7", "b"}).data->data_path,
              ElementsAre("0.3", "a", "0.7", "b"));
}

TEST(RunSettings, WindowPatterns) {
  EXPECT_THAT(
      windowed_layers(*resolved({"--window-size", "7,0", "--window-attn-skip-freq", "2"}).model),
      ElementsAre(1, 0));
  EXPECT_THAT(windowed_layers(*resolved({"--window-size", "7,0", "--num-layers", "4",
                                         "--window-attn-skip-freq", "([1]+[0])*2"})
                                   .model),
              ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(mistake_of(small({"--window-size", "7,0", "--window-attn-skip-freq", "[1]*3"})),
              HasSubstr("names 3 layers, --num-layers is 2"));
  EXPECT_THAT(mistake_of(small({"--window-size", "7,0", "--window-attn-skip-freq", "x"})),
              HasSubstr("neither a number above 0 nor a list"));
}

TEST(RunSettings, NopePatterns) {
  const auto layers = [](const char* freq) {
    return nope_layers(*resolved({"--position-embedding-type", "rope", "--num-layers", "4",
                                  "--no-rope-freq", freq})
                            .model);
  };
  EXPECT_THAT(layers("2"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(layers("[0]*3+[1]"), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(layers("0"), ElementsAre());
  EXPECT_THAT(layers("None"), ElementsAre());
  EXPECT_THAT(mistake_of(small({"--position-embedding-type", "rope", "--no-rope-freq", "[1]*3"})),
              HasSubstr("names 3 layers, --num-layers is 2"));
}

TEST(ListExpression, ReadsPythonLists) {
  EXPECT_THAT(*list_expression("([1]*3+[0])*2"), ElementsAre(1, 1, 1, 0, 1, 1, 1, 0));
  EXPECT_THAT(*list_expression(" [ 1 , 0, ] "), ElementsAre(1, 0));
  EXPECT_THAT(*list_expression("2*[1,2]"), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(*list_expression("[]*5"), IsEmpty());
  for (const char* text :
       {"", "3", "[1", "[1]]", "[1]+", "[1]*[2]", "[1]+2", "(1)", "[1 2]", "[-1]", "[1]*99999999",
        "[9999999999]", "[99999999999999999999]", "import os"}) {
    EXPECT_EQ(list_expression(text), std::nullopt) << text;
  }
  EXPECT_EQ(list_expression(std::string(100000, '(')), std::nullopt);
}

TEST(SplitShares, ReadsUpToThree) {
  EXPECT_EQ(split_weights("969, 30, 1"), (std::array<double, 3>{969, 30, 1}));
  EXPECT_EQ(split_weights("98/2"), (std::array<double, 3>{98, 2, 0}));
  EXPECT_EQ(split_weights("9;1"), (std::array<double, 3>{9, 1, 0}));
  for (const char* text : {"", "a", "0,0,0", "1,2,3,4", "-1,2", "98,,2", "98,2,", "９９,1"})
    EXPECT_EQ(split_weights(text), std::nullopt) << text;
}

TEST(Rules, EachNamesValuesAndFix) {
  const std::vector<std::pair<Args, std::string>> table = {
      {{"--hidden-size", "66"}, "--hidden-size: 66 is not divisible by --num-attention-heads 4"},
      {{"--hidden-size", "16", "--swiglu"},
       "--ffn-hidden-size: its default, 8/3 of --hidden-size rounded down to a multiple of 64, is "
       "0 with 16"},
      {{"--group-query-attention", "--num-query-groups", "3"},
       "--num-attention-heads: 4 is no multiple of --num-query-groups 3\n  fix: use "
       "--num-query-groups 2, or --num-attention-heads 3 or 6"},
      {{"--global-batch-size", "5"},
       "--global-batch-size: 5 is no multiple of --micro-batch-size 2\n  fix: use "
       "--micro-batch-size 1, or --global-batch-size 4 or 6"},
      {{"--max-position-embeddings", "16"},
       "--max-position-embeddings: 16 is less than --seq-length 32\n  fix: lower --seq-length, or "
       "in a new model raise --max-position-embeddings or use --position-embedding-type rope"},
      {{"--rampup-batch-size", "2", "2"}, "--rampup-batch-size: takes three numbers, got 2"},
      {{"--rampup-batch-size", "2", "0", "8"}, "--rampup-batch-size: must be at least 1"},
      {{"--rampup-batch-size", "1", "1", "8", "--global-batch-size", "1000000000",
        "--micro-batch-size", "1"},
       "has more than a million increments"},
      {{"--rampup-batch-size", "4", "2", "8"},
       "--rampup-batch-size: starts at 4, above --global-batch-size 2"},
      {{"--rampup-batch-size", "2", "4", "8", "--global-batch-size", "8"},
       "increments of 4 do not lead from 2 to --global-batch-size 8"},
      {{"--rampup-batch-size", "1", "1", "8", "--global-batch-size", "4"},
       "--rampup-batch-size: a batch of 1 is no multiple of --micro-batch-size 2"},
      {{"--step-batch-size-schedule", "0:2 K"}, "--step-batch-size-schedule: 'K' has no colon"},
      {{"--step-batch-size-schedule", "0:2 64:3"},
       "--step-batch-size-schedule: a batch of 3 is no multiple of --micro-batch-size 2"},
      {{"--step-batch-size-schedule", "0:2", "--global-batch-size", "2"},
       "--step-batch-size-schedule: excludes --global-batch-size"},
      {{"--step-batch-size-schedule", "0:2", "--rampup-batch-size", "2", "2", "8"},
       "--step-batch-size-schedule: excludes --rampup-batch-size"},
      {{"--step-batch-size-schedule", "0:2", "--decrease-batch-size-if-needed"},
       "excludes --decrease-batch-size-if-needed"},
      {{"--global-batch-size", "1", "--decrease-batch-size-if-needed"},
       "--micro-batch-size: 2 is more than the first batch of 1"},
      {{"--eval-global-batch-size", "3"},
       "--eval-global-batch-size: 3 is no multiple of the micro batch size of evaluation, 2"},
      {{"--eval-micro-batch-size", "3"},
       "--eval-global-batch-size: 2 is no multiple of the micro batch size of evaluation, 3"},
      {{"--validation-set-names", "a"}, "--validation-set-names: needs --multiple-validation-sets"},
      {{"--save-retain-interval", "4", "--save-interval", "3"},
       "--save-retain-interval: 4 is no multiple of --save-interval 3"},
      {{"--save-retain-interval", "4", "--save", "x"},
       "--save-retain-interval: needs --save-interval"},
      {{"--non-persistent-save-interval", "4"},
       "--non-persistent-save-interval: needs --non-persistent-ckpt-type"},
      {{"--non-persistent-ckpt-type", "local"}, "needs --non-persistent-local-ckpt-dir"},
      {{"--non-persistent-ckpt-type", "global", "--non-persistent-global-ckpt-dir", "a/../b",
        "--save", "b"},
       "is the folder of --save or --load"},
      {{"--non-persistent-ckpt-type", "in_memory"},
       "--non-persistent-ckpt-type: must be one of global, local"},
      {{"--exit-signal", "SIGKILL"}, "--exit-signal: must be one of SIGTERM, SIGUSR1"},
      {{"--save", "x", "--replication"},
       "--replication: copies local checkpoints, and the run saves none"},
      {{"--profile", "--save", "x", "--profile-step-start", "3"},
       "--profile-step-end: 12 is above --train-iters 10"},
      {{"--trace", "x", "--profile-step-start", "3"},
       "--profile-step-end: 12 is above --train-iters 10"},
      {{"--profile", "--save", "x", "--profile-step-start", "3", "--profile-step-end", "3"},
       "--profile-step-end: 3 is not above --profile-step-start 3"},
      {{"--profile", "--profile-step-start", "3", "--profile-step-end", "5"},
       "--profile: has no folder to write to"},
      {{"--prometheus-port", "0"}, "--prometheus-port: must be at least 1, got 0"},
      {{"--tensorboard-log-interval", "0"},
       "--tensorboard-log-interval: must be at least 1, got 0"},
      {{"--record-memory-history"}, "--record-memory-history: is not in this version"},
      {{"--train-samples", "100"}, "--train-iters 10: excludes --train-samples 100"},
      {{"--min-lr", "1"}, "--min-lr: 1 is above --lr 0.001"},
      {{"--lr-warmup-init", "1"}, "--lr-warmup-init: 1 is above --lr 0.001"},
      {{"--lr-warmup-iters", "10"}, "--lr-warmup-iters: 10 leaves nothing of the decay's 10"},
      {{"--lr-warmup-iters", "5", "--lr-warmup-fraction", "0.1"}, "--lr-warmup-fraction: excludes"},
      {{"--lr-decay-samples", "5"}, "--train-iters: excludes --lr-decay-samples"},
      {{"--lr-decay-style", "WSD"}, "needs the length of its decay phase"},
      {{"--weight-decay-incr-style", "cosine"},
       "--weight-decay-incr-style cosine: needs --start-weight-decay"},
      {{"--start-weight-decay", "0"}, "--start-weight-decay: needs --weight-decay-incr-style"},
      {{"--override-opt-param-scheduler", "--use-checkpoint-opt-param-scheduler"},
       "give one of the two"},
      {{"--data-path", "a", "--mock-data"}, "data: comes from more than one place"},
      {{"--data-path", "a", "b", "--blend-schedule", "0: 1 a 10: 1 b"},
       "--blend-schedule: iteration 10 is not before the end of training at iteration 10\n  fix: "
       "leave the step out, or train for longer"},
      {{"--data-path", "a", "--train-epochs", "1"}, "--train-epochs: excludes --train-iters 10"},
      {{"--split", "0,0,0"}, "--split: '0,0,0' is not"},
      {{"--tokenizer-type", "GPT2BPETokenizer"},
       "--tokenizer-type GPT2BPETokenizer: needs --merge-file"},
      {{"--tokenizer-type", "HuggingFaceTokenizer"}, "needs --tokenizer-model"},
      {{"--log-straggler", "--straggler-minmax-count", "0"},
       "--straggler-minmax-count: must be at least 1, got 0"},
      {{"--log-straggler", "--straggler-ctrlr-port", "0"},
       "--straggler-ctrlr-port: must be at least 1, got 0"},
      {{"--decoupled-lr", "1e-3", "--decoupled-min-lr", "1"},
       "--decoupled-min-lr: 1 is above --decoupled-lr 0.001"},
      {{"--bf16", "--fp16"}, "--bf16: excludes --fp16"},
      {{"--fp16", "--min-loss-scale", "8", "--initial-loss-scale", "4"},
       "--min-loss-scale: 8 is above --initial-loss-scale 4"},
      {{"--loss-scale-window", "0"}, "--loss-scale-window: must be at least 1, got 0"},
      {{"--exp-avg-dtype", "bf16"}, "--exp-avg-dtype bf16: needs --use-precision-aware-optimizer"},
      {{"--exp-avg-sq-dtype", "fp8"},
       "--exp-avg-sq-dtype fp8: needs --use-precision-aware-optimizer"},
      {{"--main-grads-error-feedback"},
       "--main-grads-error-feedback: has no effect on fp32 gradients"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.5"},
       "--optimizer-offload-fraction: must be at most 1, got 1.5"},
      {{"--use-precision-aware-optimizer", "--main-params-dtype", "fp16"},
       "--main-params-dtype fp16: is not in this version"},
      {{"--use-precision-aware-optimizer", "--main-grads-dtype", "bf16"},
       "--main-grads-dtype bf16: needs --bf16"},
      {{"--bf16", "--main-grads-dtype", "bf16"},
       "--main-grads-dtype bf16: needs --use-precision-aware-optimizer"},
      {{"--use-precision-aware-optimizer", "--optimizer", "sgd"}, "needs --optimizer adam"},
      {{"--hidden-dropout", "1"}, "--hidden-dropout: must be below 1, got 1"},
      {{"--eval-interval", "0"}, "--eval-interval: must be at least 1, got 0"},
      {{"--seed", "0"}, "--seed: must be at least 1"},
      {{"--hidden-size", "9223372036854775807"}, "--hidden-size: must be at most 1000000000"},
      {{"--position-embedding-type", "rope", "--rotary-percent", "0.2"},
       "not an even number above 0"},
      {{"--window-size", "-2,0"}, "has a side below -1"},
      {{"--norm-placement", "post", "--apply-residual-connection-post-layernorm"},
       "excludes --norm-placement post"},
      {{"--share-block-norm"}, "needs --parallel-residual"},
      {{"--qk-layernorm-scope", "each_head"}, "needs --qk-layernorm"},
      {{"--position-embedding-type", "relative", "--relative-attention-max-distance", "16"},
       "--relative-attention-max-distance: 16 is not above half of "
       "--relative-attention-num-buckets 32"},
      {{"--window-size", "7,0", "--attention-chunk-size", "8"}, "excludes --attention-chunk-size"},
  };
  for (const auto& [words, expected] : table)
    EXPECT_THAT(mistake_of(small(words)), HasSubstr(expected)) << words[0];
}

TEST(RunSettings, LengthInSamplesFollowsTheBatchSizes) {
  EXPECT_EQ(resolved({"--train-iters", "0", "--train-samples", "20", "--global-batch-size", "8",
                      "--rampup-batch-size", "2", "2", "6"})
                .training->train_iters,
            3);  // 2, 4 and 8; the rest of 20 is less than 8
  const auto steps = *resolved({"--train-iters", "0", "--train-samples", "20",
                                "--step-batch-size-schedule", "0:2 128:8"})
                          .training;
  EXPECT_EQ(steps.global_batch_size, 8);
  EXPECT_EQ(steps.train_iters, 4);  // 2, 2, 8, 8
}

TEST(Rules, EvaluationAloneNeedsNoScheduleOfTraining) {
  EXPECT_EQ(mistake_of({"gpt", "--load", "somewhere", "--seq-length", "8", "--micro-batch-size",
                        "1", "--skip-train"}),
            "no error");
}

TEST(Rules, AllAreShownTogetherAndUnreadableFieldsOnce) {
  const std::string text = mistake_of({"gpt", "--num-layers", "two"});
  for (const char* flag :
       {"--num-layers: must be an integer, got 'two'", "--hidden-size: is required",
        "--num-attention-heads: is required", "--seq-length: is required",
        "--micro-batch-size: is required", "--train-iters: is required", "--lr: is required",
        "--vocab-file and --merge-file: are required"}) {
    EXPECT_THAT(text, HasSubstr(flag));
  }
  EXPECT_THAT(text, ::testing::Not(HasSubstr("--num-layers: is required")));
}

TEST(Rules, ArchitectureMayComeFromACheckpoint) {
  const Args words{"gpt", "--load", "somewhere", "--seq-length",       "8", "--train-iters",
                   "1",   "--lr",   "1",         "--micro-batch-size", "1"};
  EXPECT_EQ(mistake_of(words), "no error");
}

TEST(Precision, KnobsOfADynamicLossScaleAreNotedWhereThereIsNone) {
  for (const Args& words : {Args{"--bf16"}, Args{"--fp16", "--loss-scale", "128"}, Args{}}) {
    Args all = words;
    all.insert(all.end(), {"--initial-loss-scale", "65536", "--hysteresis", "3"});
    EXPECT_THAT(notes_text(run(all).parsed.notes),
                HasSubstr("  --initial-loss-scale, --hysteresis: there is no dynamic loss scale"));
  }
  EXPECT_EQ(notes_text(run({"--fp16", "--initial-loss-scale", "65536"}).parsed.notes), "");
}

TEST(Precision, FollowsTheFlags) {
  EXPECT_TRUE(resolved({"--bf16"}).training->accumulate_allreduce_grads_in_fp32);
  EXPECT_FALSE(
      resolved({"--bf16", "--grad-reduce-in-bf16"}).training->accumulate_allreduce_grads_in_fp32);
  EXPECT_FALSE(resolved({}).training->accumulate_allreduce_grads_in_fp32);
  EXPECT_TRUE(resolved({"--bf16"}).training->check_for_nan_in_loss_and_grad);
  EXPECT_FALSE(resolved({"--fp16"}).training->check_for_nan_in_loss_and_grad);
  EXPECT_TRUE(resolved({"--fp16", "--loss-scale", "128"}).training->check_for_nan_in_loss_and_grad);
  EXPECT_FALSE(resolved({"--fp16", "--loss-scale", "0"})
                   .training->check_for_nan_in_loss_and_grad);  // 0 means dynamic, as in Megatron
}

TEST(PrintConfig, ShowsValuesAndOrigins) {
  const auto found = run({"--print-config"});
  EXPECT_THAT(
      config_text(found),
      AllOf(
          HasSubstr("  num_layers                                 2                         flag "
                    "--num-layers\n"),
          HasSubstr(
              "  ffn_hidden_size                            256                       derived\n"),
          HasSubstr(
              "  seed                                       1234                      default\n")));
  EXPECT_THAT(config_json(found),
              AllOf(HasSubstr("\"num_layers\": {\n    \"value\": 2,\n    \"origin\": \"flag\",\n   "
                              " \"where\": \"--num-layers\"\n  }"),
                    HasSubstr("\"lr\": {\n    \"value\": 0.001"),
                    HasSubstr("\"eval_interval\": {\n    \"value\": null")));
}

TEST(PrintConfig, DumpsArgumentsAsMegatronDoes) {
  const std::string text = argument_dump(resolved({"--data-path", "a", "b"}));
  EXPECT_TRUE(
      text.starts_with("------------------------ arguments ------------------------\n  "
                       "account_for_embedding_in_pipeline_split ......... False\n"));
  EXPECT_TRUE(text.ends_with("-------------------- end of arguments ---------------------\n"));
  // Python: '  {} {} {}'.format(name, '.' * (48 - len(name)), value)
  EXPECT_THAT(text, HasSubstr("\n  num_layers ...................................... 2\n"));
  EXPECT_THAT(text, HasSubstr(" ['a', 'b']\n"));
  EXPECT_THAT(text, HasSubstr("\n  eval_interval ................................... None\n"));
  EXPECT_THAT(text, HasSubstr("\n  add_bias_linear ................................. True\n"));
}

}  // namespace
}  // namespace megatron
