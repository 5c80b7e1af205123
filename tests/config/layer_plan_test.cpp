#include "megatron/config/layer_plan.h"

#include "config/small_run.h"
#include "megatron/config/command_line.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/resolve.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using testing::HasSubstr;

const LayerKind kAttention{.feed_forward = FeedForwardKind::none}, kMlp{.mixer = MixerKind::none},
    kExperts{.mixer = MixerKind::none, .feed_forward = FeedForwardKind::experts};

RunConfig hybrid(const Args& more) {
  Args words = small({"--hybrid-layer-pattern"});
  words[0] = "hybrid";
  words.insert(words.end(), more.begin(), more.end());
  RunConfig run = read_run(words, 4);
  resolve(run.options.settings);
  return run;
}

std::string mistake_of_hybrid(const Args& more) {
  return message_of([&] { hybrid(more); });
}

std::vector<LayerKind> kinds(const TransformerConfig& model) {
  std::vector<LayerKind> all;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) all.push_back(model.kind(layer));
  return all;
}

TEST(LayerPlan, ASymbolIsALayerOfOneBlock) {
  const RunConfig run = hybrid({"*-*E", "--num-experts", "4"});
  EXPECT_EQ(kinds(*run.options.settings.model),
            (std::vector{kAttention, kMlp, kAttention, kExperts}));
  EXPECT_THAT(notes_text(run.parsed.notes), HasSubstr("has 4 layers: --num-layers is ignored"));
}

TEST(LayerPlan, LayersDifferInExpertsWindowAndExchange) {
  TransformerConfig model;
  model.num_layers = 3;
  model.moe.num_experts = 4;
  model.window_size = {7, 0};
  set_experts(model, {0, 1, 1});
  set_windows(model, {1, 1, 0});
  set_comm_types(model, {CpCommType::p2p, CpCommType::a2a, CpCommType::p2p});
  const LayerKind dense{.window = model.window_size},
      exchanged{.feed_forward = FeedForwardKind::experts,
                .window = model.window_size,
                .cp_comm_type = CpCommType::a2a},
      full{.feed_forward = FeedForwardKind::experts};
  EXPECT_EQ(kinds(model), (std::vector{dense, exchanged, full}));
  EXPECT_EQ(expert_layers(model), (std::vector<std::int64_t>{0, 1, 1}));
  set_experts(model, {});
  set_windows(model, {});
  EXPECT_TRUE(model.layers.empty()) << "all layers are alike";
}

TEST(LayerPlan, OnlyAttentionHasAWindow) {
  TransformerConfig model;
  model.hybrid_layer_pattern = "*-|*";
  model.window_size = {7, 0};
  set_windows(model, {1, 1, 0});
  LayerKind windowed = kAttention;
  windowed.window = model.window_size;
  EXPECT_EQ(kinds(model), (std::vector{windowed, kMlp, kAttention}));
}

TEST(LayerPlan, LayersDifferInChunksAndRotation) {
  TransformerConfig model;
  model.num_layers = 4;
  model.attention_chunk_size = 8;
  model.rotary_base_local = 100;
  model.no_rope_freq = "4";
  set_windows(model, {1, 0, 1, 1});
  const LayerKind chunked{.chunk = 8, .rotary = RotaryKind::local},
      last{.chunk = 8, .rotary = RotaryKind::none};
  EXPECT_EQ(kinds(model), (std::vector{chunked, LayerKind{}, chunked, last}));
  EXPECT_EQ(nope_layers(model), (std::vector<std::int64_t>{0, 0, 0, 1}));
  TransformerConfig blocks = model;
  split_blocks(blocks);
  EXPECT_TRUE(pair_blocks(blocks));
  EXPECT_EQ(kinds(blocks), kinds(model));
  set_nope(model, {0, 1});
  EXPECT_TRUE(model.layers.empty()) << "a rule reports a list for other layers";
}

TEST(LayerPlan, PairsOfBlocksAreLayersOfTwo) {
  TransformerConfig layers;
  layers.num_layers = 2;
  layers.moe.num_experts = 4;
  layers.window_size = {7, 0};
  set_experts(layers, {0, 1});
  set_windows(layers, {0, 1});
  TransformerConfig blocks = layers;
  split_blocks(blocks);
  EXPECT_EQ(blocks.hybrid_layer_pattern, "*-*E");
  EXPECT_EQ(blocks.num_layers, 4);
  LayerKind windowed = kAttention;
  windowed.window = layers.window_size;
  EXPECT_EQ(kinds(blocks), (std::vector{kAttention, kMlp, windowed, kExperts}));
  EXPECT_TRUE(pair_blocks(blocks));
  EXPECT_EQ(kinds(blocks), kinds(layers));
  for (const char* pattern : {"*", "-*", "**-E", "*-*"}) {
    blocks.hybrid_layer_pattern = pattern;
    EXPECT_FALSE(pair_blocks(blocks)) << pattern;
    EXPECT_EQ(blocks.hybrid_layer_pattern, pattern);
  }
}

TEST(LayerPlan, KindsKeepTheOrderInWhichTheyCame) {
  ByKind<int> counts;
  for (const LayerKind& kind : {kMlp, kAttention, kMlp}) ++counts[kind];
  EXPECT_EQ(counts.entries, (std::vector<std::pair<LayerKind, int>>{{kMlp, 2}, {kAttention, 1}}));
  EXPECT_EQ(counts.of(kAttention), 1);
}

TEST(LayerPlan, KindsHaveTheWordsOfTheField) {
  EXPECT_EQ(words_of({}), "dense layer");
  EXPECT_EQ(words_of({.feed_forward = FeedForwardKind::experts}), "MoE layer");
  EXPECT_EQ(words_of(kExperts), "MoE layer");
  EXPECT_EQ(words_of(kAttention), "attention layer");
  EXPECT_EQ(words_of(kMlp), "MLP layer");
}

TEST(HybridPattern, BarsAreTheStagesOfThePipeline) {
  const RunConfig run = hybrid({"*-|*-", "--pipeline-model-parallel-size", "2"});
  EXPECT_EQ(run.options.settings.parallel->pipeline_model_parallel_layout, "Ett|ttL");
  EXPECT_EQ(run.options.settings.model->hybrid_layer_pattern, "*-*-");
  EXPECT_THAT(mistake_of_hybrid({"*-|*-", "--pipeline-model-parallel-size", "2",
                                 "--pipeline-model-parallel-layout", "Ettt|tL"}),
              HasSubstr("contradicts --pipeline-model-parallel-layout"));
  EXPECT_THAT(
      mistake_of_hybrid({"*-|*-|*-|*-", "--pipeline-model-parallel-size", "2",
                         "--num-layers-per-virtual-pipeline-stage", "2"}),
      AllOf(HasSubstr("--hybrid-layer-pattern: its | end the stages of the pipeline, 2 on each "
                      "rank, and --num-layers-per-virtual-pipeline-stage divides the layers too"),
            HasSubstr("leave --num-layers-per-virtual-pipeline-stage out, or remove every |"),
            Not(HasSubstr("--pipeline-model-parallel-layout"))));
  EXPECT_THAT(notes_text(hybrid({"*-|*-"}).parsed.notes), HasSubstr("| are without effect"));
  EXPECT_EQ(
      message_of([&] {
        Args words =
            small({"--hybrid-layer-pattern", "*-|*|-", "--pipeline-model-parallel-size", "2"});
        words[0] = "hybrid";
        read_run(words, 2);
      }),
      "--hybrid-layer-pattern: has 3 stages, no multiple of --pipeline-model-parallel-size 2\n"
      "  fix: add or remove a |, which ends a stage; a stage may be empty");
}

TEST(HybridPattern, DepthsOfMultiTokenPredictionFollowTheLayers) {
  const RunConfig run =
      hybrid({"M-|*-/*-M/*-M", "--pipeline-model-parallel-size", "2", "--mtp-num-layers", "1",
              "--position-embedding-type", "rope", "--mamba-num-heads", "8"});
  EXPECT_THAT(notes_text(run.parsed.notes),
              HasSubstr("has 2 depths of multi-token prediction: --mtp-num-layers is ignored"));
  const TransformerConfig& model = *run.options.settings.model;
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.mtp_num_layers, 2);
  EXPECT_EQ(model.num_all_layers(), 10);
  EXPECT_EQ(model.hybrid_layer_pattern, "M-*-/*-M/*-M");
  for (const std::int64_t depth : {4, 7}) {
    EXPECT_TRUE(model.kind(depth).has_attention());
    EXPECT_TRUE(model.kind(depth + 1).has_mlp());
    EXPECT_EQ(model.kind(depth + 2), model.kind(0));
  }
  TransformerConfig typed = model;
  set_comm_types(typed, {CpCommType::p2p, CpCommType::p2p, CpCommType::a2a, CpCommType::a2a});
  EXPECT_EQ(typed.kind(2).cp_comm_type, CpCommType::a2a);
  EXPECT_EQ(typed.kind(4).cp_comm_type, CpCommType::a2a);  // that of the last layer
  const std::vector<StageLayers> stages =
      pipeline_layout(*run.options.settings.parallel, model).stages;
  EXPECT_EQ(stages.at(0), (StageLayers{.num_layers = 2, .has_embedding = true}));
  EXPECT_EQ(stages.at(1),
            (StageLayers{.first_layer = 2, .num_layers = 8, .num_mtp = 6, .has_output = true}));
  EXPECT_EQ(stages.at(1).num_embeddings(model), 2);
}

TEST(HybridPattern, MistakesAreNamed) {
  EXPECT_THAT(mistake_of_hybrid({"M-D"}), HasSubstr("'D' is sparse attention (DSA), which is not"));
  EXPECT_THAT(mistake_of_hybrid({"+-"}),
              HasSubstr("--hybrid-layer-pattern: its attention is + with multi-latent attention"));
  EXPECT_THAT(mistake_of_hybrid({"+*", "--multi-latent-attention"}),
              HasSubstr("its attention is + with multi-latent attention, and * without"));
  EXPECT_THAT(mistake_of_hybrid({"*-/"}), HasSubstr("lists no layer behind /"));
  EXPECT_THAT(mistake_of_hybrid({"/*-"}), HasSubstr("lists no layer"));
  EXPECT_THAT(mistake_of_hybrid({"*-/*-/M-"}), HasSubstr("depths of multi-token prediction that"));
  EXPECT_THAT(mistake_of_hybrid({"*-/*|-"}), HasSubstr("has a | behind /"));
  EXPECT_THAT(mistake_of_hybrid({"*-", "--mtp-num-layers", "1"}),
              HasSubstr("write them behind a / for each depth"));
  EXPECT_THAT(mistake_of_hybrid({"*x"}), HasSubstr("'x' is no symbol of a layer"));
  EXPECT_THAT(mistake_of({"hybrid", "--hybrid-layer-pattern", "*x"}),
              Not(HasSubstr("--num-layers")));
  EXPECT_THAT(mistake_of_hybrid({"||"}), HasSubstr("lists no layer"));
  EXPECT_EQ(mistake_of_hybrid({"-*"}),
            "--hybrid-layer-pattern: expects a value, and -* reads as a flag\n"
            "  fix: write --hybrid-layer-pattern=-*");
  EXPECT_THAT(mistake_of_hybrid({"*E"}), HasSubstr("needs --num-experts"));
  EXPECT_THAT(mistake_of_hybrid({"*E", "--num-experts", "4", "--moe-layer-freq", "2"}),
              HasSubstr("--moe-layer-freq: excludes --hybrid-layer-pattern"));
  EXPECT_THAT(mistake({"--hybrid-layer-pattern", "*-"}), HasSubstr("train hybrid instead of gpt"));
}

TEST(LayerPlan, LinearAttentionTakesThePlaceOfAttention) {
  TransformerConfig model;
  model.num_layers = 4;
  model.window_size = {7, 0};
  set_linear_attention(model, {1, 1, 1, 0});
  const LayerKind delta{.mixer = MixerKind::gated_delta_net}, full{.window = model.window_size};
  EXPECT_EQ(kinds(model), (std::vector{delta, delta, delta, full}));
  EXPECT_EQ(model.linear_attention.variant, AttentionVariant::gated_delta_net);
  model.linear_attention.freq = "2";
  resolve(model);
  EXPECT_EQ(kinds(model), (std::vector{delta, full, delta, full}));
  EXPECT_EQ(linear_attention_layers(model), (std::vector<std::int64_t>{1, 0, 1, 0}));
  TransformerConfig blocks = model;
  split_blocks(blocks);
  EXPECT_EQ(blocks.hybrid_layer_pattern, "G-*-G-*-");
  EXPECT_TRUE(pair_blocks(blocks));
  EXPECT_EQ(kinds(blocks), kinds(model));
  set_linear_attention(model, {0, 0, 0, 0});
  EXPECT_EQ(model.linear_attention.variant, AttentionVariant::none);
  EXPECT_TRUE(model.layers.empty()) << "all layers are alike";
  blocks.hybrid_layer_pattern = "M-";
  EXPECT_FALSE(pair_blocks(blocks)) << "a layer of two blocks has no Mamba-2 mixer";
}

TEST(HybridPattern, SymbolsOfRecurrentLayers) {
  const RunConfig run = hybrid({"MG*-", "--mamba-head-dim", "12"});
  const LayerKind mamba{.mixer = MixerKind::mamba, .feed_forward = FeedForwardKind::none},
      delta{.mixer = MixerKind::gated_delta_net, .feed_forward = FeedForwardKind::none};
  EXPECT_EQ(kinds(*run.options.settings.model), (std::vector{mamba, delta, kAttention, kMlp}));
  EXPECT_EQ(words_of(mamba), "Mamba layer");
  EXPECT_EQ(words_of(delta), "gated delta net layer");
  EXPECT_TRUE(mamba.is_recurrent() && mamba.has_mixer() && !mamba.has_attention());
}

/// Values of allocate_layers() of megatron-core 0.15.
TEST(HybridPattern, RatiosAreAllocatedAsInMegatron) {
  EXPECT_EQ(allocated_pattern(9, 0, 0), "MMMMMMMMM");
  EXPECT_EQ(allocated_pattern(9, 0.11, 0), "MMMM*MMMM");
  EXPECT_EQ(allocated_pattern(10, 0, 0.5), "M-M-M-M-M-");
  EXPECT_EQ(allocated_pattern(10, 0.1, 0.2), "MMMM-*MMM-");
  EXPECT_EQ(allocated_pattern(5, 0.5, 0.5), "M*-*-");
  EXPECT_EQ(allocated_pattern(7, 0.5, 0), "M**M**M");
  EXPECT_EQ(allocated_pattern(48, 0.08, 0.5), "M-M-M--M-*M-M-M-M--*M-M-M-M-*M--M-M-M-*M-M--M-M-");
  const auto pattern = [](Args words, const Args& more) {
    words[0] = "hybrid";
    words.insert(words.end(), more.begin(), more.end());
    return read_run(words, 1).options.settings.model->hybrid_layer_pattern;
  };
  Args given = small({"--mamba-head-dim", "12"});
  given[2] = "4";  // layers
  EXPECT_EQ(pattern(given, {}), "MMMM");
  EXPECT_EQ(pattern(given, {"--hybrid-attention-ratio", "0.25"}), "MM*M");
  EXPECT_THAT(message_of([&] {
                pattern(given, {"--hybrid-attention-ratio", "0.7", "--hybrid-mlp-ratio", "0.5"});
              }),
              HasSubstr("add up to more than 1"));
  const auto notes = [](const Args& words) { return notes_text(read_run(words).parsed.notes); };
  EXPECT_THAT(
      notes(small({"--hybrid-attention-ratio", "0.5"})),
      HasSubstr("--hybrid-attention-ratio: it belongs to hybrid models, and this run trains "
                "gpt"));
  EXPECT_THAT(notes_text(hybrid({"*-", "--hybrid-mlp-ratio", "0.1"}).parsed.notes),
              HasSubstr("--hybrid-mlp-ratio: --hybrid-layer-pattern lists the layers"));
  given[0] = "hybrid";
  given.insert(given.end(), {"--hybrid-attention-ratio", "0.25"});
  EXPECT_THAT(notes(given), Not(HasSubstr("-ratio")));
}

TEST(HybridPattern, HeadsOfRecurrentLayersFitTheRanks) {
  EXPECT_THAT(mistake_of_hybrid({"M", "--mamba-num-heads", "6", "--mamba-num-groups", "4"}),
              HasSubstr("--mamba-num-heads: 6 is no multiple of --mamba-num-groups 4"));
  EXPECT_THAT(mistake_of_hybrid({"M", "--mamba-head-dim", "36", "--mamba-num-groups", "1"}),
              HasSubstr("does not divide twice --hidden-size"));
  EXPECT_THAT(mistake_of_hybrid({"G", "--linear-num-key-heads", "3", "--linear-num-value-heads",
                                 "6", "--tensor-model-parallel-size", "2"}),
              HasSubstr("--linear-num-key-heads: 3 and --tensor-model-parallel-size 2: neither"));
  EXPECT_THAT(mistake_of_hybrid({"G*", "--context-parallel-size", "3"}),
              HasSubstr("--linear-num-value-heads: 32 cannot be divided by "
                        "--tensor-model-parallel-size 1 times --context-parallel-size 3"));
  EXPECT_THAT(mistake_of_hybrid({"M", "--mamba-num-heads", "12", "--mamba-num-groups", "3",
                                 "--context-parallel-size", "2"}),
              HasSubstr("--mamba-num-groups: 3 and --tensor-model-parallel-size 1 times "
                        "--context-parallel-size 2: neither divides the other"));
  EXPECT_THAT(mistake_of_hybrid({"*-", "--experimental-attention-variant", "gdn"}),
              HasSubstr("write G in --hybrid-layer-pattern"));
  EXPECT_THAT(mistake({"--experimental-attention-variant", "dsa"}),
              HasSubstr("gdn2 and dsa are not in this version"));
  EXPECT_THAT(mistake({"--experimental-attention-variant", "gdn", "--linear-attention-freq", "x"}),
              HasSubstr("'x' is neither a number above 0 nor a list expression"));
  EXPECT_THAT(notes_text(hybrid({"*-", "--mamba-state-dim", "16"}).parsed.notes),
              HasSubstr("--mamba-state-dim"));
}

TEST(LayerPlan, ListsHaveZerosAndOnes) {
  const Args rope{"--position-embedding-type", "rope"};
  for (Args flags :
       {Args{"--linear-attention-freq", "[1,2]", "--experimental-attention-variant", "gdn"},
        Args{"--window-attn-skip-freq", "[1,2]", "--window-size", "7,0"},
        Args{"--no-rope-freq", "[0,9]"}}) {
    const std::string expected = flags[0] + ": '" + flags[1] +
                                 "' lists a number other than 0 and 1\n  fix: write 0 or 1 for "
                                 "each layer, such as ([";
    flags.insert(flags.end(), rope.begin(), rope.end());
    EXPECT_THAT(mistake(flags), HasSubstr(expected));
  }
}

TEST(LayerPlan, NotesListsThatNameLayersWithoutAttention) {
  const auto notes = [](Args flags) {
    flags.insert(flags.begin(), "*-*-");
    flags.insert(flags.end(), {"--position-embedding-type", "rope"});
    return notes_text(hybrid(flags).parsed.notes);
  };
  EXPECT_THAT(notes({"--no-rope-freq", "2"}),
              HasSubstr("--no-rope-freq: counts every layer of --hybrid-layer-pattern: 2 of those "
                        "that it names have no attention\n"));
  EXPECT_THAT(notes({"--no-rope-freq", "[1,0,0,0]"}), Not(HasSubstr("counts every layer")));
  EXPECT_THAT(
      notes({"--window-size", "7,0", "--window-attn-skip-freq", "4"}),
      HasSubstr("--window-attn-skip-freq: counts every layer of --hybrid-layer-pattern: 1"));
  EXPECT_THAT(notes({"--window-size", "7,0", "--window-attn-skip-freq", "[1,0,1,0]"}),
              Not(HasSubstr("counts every layer")));
}

}  // namespace
}  // namespace megatron
