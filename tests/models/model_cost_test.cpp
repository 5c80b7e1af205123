// Cost formulas against the values of Megatron-LM's own functions for three models (dense, mixture
// of experts, Mamba hybrid).
#include "megatron/models/model_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

ModelDimensions gpt_345m() {
  return {.num_layers = 24,
          .hidden_size = 1024,
          .num_attention_heads = 16,
          .query_groups = 16,
          .kv_channels = 64,
          .ffn_hidden_size = 4096,
          .padded_vocab_size = 50304};
}

ModelDimensions moe() {
  return {.num_layers = 4,
          .hidden_size = 2048,
          .num_attention_heads = 16,
          .query_groups = 4,
          .kv_channels = 128,
          .ffn_hidden_size = 8192,
          .gated_linear_unit = true,
          .rms_norm = true,
          .untied_output = true,
          .padded_vocab_size = 128256,
          .num_moe_layers = 3,
          .num_experts = 8,
          .moe_topk = 2,
          .moe_ffn_hidden_size = 1024,
          .moe_shared_expert_ffn_hidden_size = 1024,
          .num_mtp_layers = 1,
          .mtp_layers_are_moe = true};
}

TEST(FloatingPointOperations, EqualMegatron) {
  EXPECT_EQ(num_floating_point_operations(gpt_345m(), std::int64_t{8}, std::int64_t{1024}),
            18612240777216.0);
  EXPECT_EQ(num_floating_point_operations(moe(), std::int64_t{16}, std::int64_t{4096}),
            296458238558208.0);
}

TEST(FloatingPointOperations, PackedDocumentsCostTheirOwnSquares) {
  const double whole = num_floating_point_operations(gpt_345m(), 1024.0, 1024.0 * 1024);
  const double halves = num_floating_point_operations(gpt_345m(), 1024.0, 2 * 512.0 * 512);
  EXPECT_EQ(whole - halves, 6 * 512.0 * 1024 * 1024 * 24);
}

TEST(TheoreticalMemory, DenseOnOneRankEqualsMegatron) {
  const MemoryLayout layout{.micro_batch_size = 8, .sequence_length = 1024, .num_microbatches = 1};
  EXPECT_EQ(theoretical_memory_report(gpt_345m(), layout, false),
            "Theoretical memory footprints: weight and optimizer=6069.97 MB, activation=7704.97 "
            "MB, total=13774.94 MB\n\n");
}

/// A model of Korthikanti et al. 2022, table 3: all use 8-way tensor parallelism and sequences of
/// 2048 tokens of a vocabulary of 51,200.
struct PublishedModel {
  const char* name;
  std::int64_t layers, hidden, heads, micro_batch;
  double parameters;  ///< in billions
};

const PublishedModel kPublishedModels[] = {{"22B", 48, 6144, 64, 4, 22},
                                           {"175B", 96, 12288, 96, 1, 175},
                                           {"530B", 105, 20480, 128, 1, 530},
                                           {"1T", 128, 25600, 160, 1, 1000}};

ModelDimensions dimensions_of(const PublishedModel& model) {
  return {.num_layers = model.layers,
          .hidden_size = model.hidden,
          .num_attention_heads = model.heads,
          .query_groups = model.heads,
          .kv_channels = model.hidden / model.heads,
          .ffn_hidden_size = 4 * model.hidden,
          .padded_vocab_size = 51200};
}

// With t = 8 a layer keeps s·b·h·(10 + 24/t) bytes without the scores of attention (their table 2),
// and with sequence parallelism and selective recomputation 34·s·b·h/t. With the scores, of
// 5·a·s/h·s·b·h/t bytes, the latter is about a fifth of tensor parallelism alone ("5x"), and about
// twice full recomputation, 2·s·b·h.
TEST(TheoreticalMemory, OfPublishedModelsIsThatOfThePaper) {
  for (const PublishedModel& model : kPublishedModels) {
    MemoryLayout layout{.tensor_parallel = 8,
                        .micro_batch_size = model.micro_batch,
                        .sequence_length = 2048,
                        .num_microbatches = 1};
    const auto per_layer = [&] {
      return theoretical_memory(dimensions_of(model), layout).activation_per_layer_bytes;
    };
    const double rows = 2048.0 * static_cast<double>(model.micro_batch * model.hidden),
                 scores = 5.0 * static_cast<double>(model.heads) * 2048 /
                          static_cast<double>(model.hidden) / 8 * rows;
    const double tensor_parallel = per_layer() + scores;
    EXPECT_DOUBLE_EQ(per_layer(), rows * (10 + 24.0 / 8)) << model.name;
    layout.sequence_parallel_with_selective_recompute = true;
    EXPECT_DOUBLE_EQ(per_layer(), 34 * rows / 8) << model.name;
    EXPECT_NEAR(per_layer() / tensor_parallel, 0.2, 0.04)
        << model.name << ": 5x, table 2 and fig. 7";
    EXPECT_NEAR(2 * rows / tensor_parallel, 0.1, 0.025) << model.name << ": full recomputation";
    const double parameters = count_parameters(dimensions_of(model), layout).total() / 1e9;
    EXPECT_NEAR(parameters / model.parameters, 1, 0.01) << model.name;
  }
}

// Section 5: selective recomputation saves 70 % of the activations of a layer of GPT-3 and 65 % of
// one of MT-NLG.
TEST(TheoreticalMemory, OfSelectiveRecomputeSavesWhatThePaperSays) {
  const auto saved = [](const PublishedModel& model) {
    const double hidden = static_cast<double>(model.hidden);
    const MemoryLayout layout{.tensor_parallel = 8,
                              .sequence_parallel_with_selective_recompute = true,
                              .micro_batch_size = 1,
                              .sequence_length = 2048};
    const double scores = 5.0 * static_cast<double>(model.heads) * 2048 * 2048 / 8;
    const double kept = theoretical_memory(dimensions_of(model), layout).activation_per_layer_bytes;
    EXPECT_DOUBLE_EQ(kept, 34 * 2048 * hidden / 8) << model.name;
    return scores / (kept + scores);
  };
  EXPECT_NEAR(saved(kPublishedModels[1]), 0.70, 0.005);
  EXPECT_NEAR(saved(kPublishedModels[2]), 0.65, 0.005);
}

TEST(TheoreticalMemory, ExpertsOnEightRanksEqualMegatron) {
  const MemoryLayout layout{.tensor_parallel = 2,
                            .pipeline_parallel = 2,
                            .data_parallel = 2,
                            .expert_tensor_parallel = 2,
                            .expert_data_parallel = 2,
                            .use_distributed_optimizer = true,
                            .sequence_parallel_with_selective_recompute = true,
                            .micro_batch_size = 1,
                            .sequence_length = 4096,
                            .num_microbatches = 8};
  EXPECT_THAT(
      theoretical_memory_report(moe(), layout, true),
      testing::AllOf(
          testing::StartsWith("Number of parameters in transformer block in billions:  0.26\n"),
          testing::HasSubstr("Number of in-flight microbatches: 2\n"),
          testing::EndsWith(
              "weight and optimizer=2637.62 MB, activation=552.03 MB, total=3189.65 MB\n\n")));
}

TEST(TheoreticalMemory, InterleavingCostsAndFewMicrobatchesSave) {
  MemoryLayout layout{.pipeline_parallel = 4,
                      .sequence_parallel_with_selective_recompute = true,
                      .sequence_length = 1024,
                      .num_microbatches = 8};
  const double plain = theoretical_memory(gpt_345m(), layout).activation_bytes;
  layout.num_microbatches = 2;
  EXPECT_EQ(theoretical_memory(gpt_345m(), layout).activation_bytes, plain / 2);
  layout.virtual_pipeline_chunks = 3;
  EXPECT_DOUBLE_EQ(theoretical_memory(gpt_345m(), layout).activation_bytes, plain * 1.25);
  EXPECT_EQ(theoretical_memory(gpt_345m(), layout).in_flight_microbatches, 5);
}

TEST(ParameterCount, OfATinyModelByHand) {
  const ModelDimensions tiny{.num_layers = 2,
                             .hidden_size = 8,
                             .num_attention_heads = 2,
                             .query_groups = 1,
                             .kv_channels = 4,
                             .ffn_hidden_size = 16,
                             .gated_linear_unit = true,
                             .rms_norm = true,
                             .untied_output = true,
                             .padded_vocab_size = 32};
  const ParameterCount count = count_parameters(tiny, {});
  const double qkv = 8 * (8 + 4 + 4), projection = 8 * 8, mlp = 3 * 8 * 16, norms = 2 * 8;
  EXPECT_EQ(count.transformer_block, 2 * (qkv + projection + mlp + norms) + 8);
  EXPECT_EQ(count.total(), count.transformer_block + 2 * 8 * 32);
  EXPECT_EQ(count.most_loaded_shard, count.total());
}

/// The experts of moe() as settings, without multi-token prediction.
TransformerConfig moe_config() {
  TransformerConfig config;
  config.num_layers = 4;
  config.hidden_size = 2048;
  config.num_attention_heads = 16;
  config.group_query_attention = true;
  config.num_query_groups = 4;
  config.kv_channels = 128;
  config.ffn_hidden_size = 8192;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.normalization = Normalization::RMSNorm;
  config.untie_embeddings_and_output_weights = true;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  set_experts(config, {0, 1, 1, 1});
  config.moe.ffn_hidden_size = 1024;
  config.moe.shared_expert_intermediate_size = 1024;
  return config;
}

TEST(ModelDimensions, OfExpertsComeFromAConfig) {
  ModelDimensions dimensions = model_dimensions(moe_config(), 128256);
  dimensions.num_mtp_layers = 1;
  dimensions.mtp_layers_are_moe = true;
  EXPECT_EQ(num_floating_point_operations(dimensions, std::int64_t{16}, std::int64_t{4096}),
            296458238558208.0);
}

TEST(ModelDimensions, ExpertsHaveTheWidthOfTheDenseMlpUnlessSet) {
  TransformerConfig config = moe_config();
  config.moe.ffn_hidden_size = 0;
  EXPECT_EQ(model_dimensions(config, 128256).moe_ffn_hidden_size, 8192);
  set_experts(config, {});
  EXPECT_EQ(model_dimensions(config, 128256).num_moe_layers, 4);
  config.moe.num_experts = 0;
  EXPECT_EQ(model_dimensions(config, 128256).num_moe_layers, 0);
}

// Megatron-LM: the routed term is multiplied by latent/h, and each MoE layer has 2·latent more.
TEST(FloatingPointOperations, OfLatentExperts) {
  TransformerConfig config = moe_config();
  const auto flops = [&] {
    return num_floating_point_operations(model_dimensions(config, 128256), 1.0, 1.0);
  };
  const double whole = flops();
  config.moe.latent_size = 512;
  const double routed = 1024 * 2 * 3, projections = 2 * 512;
  EXPECT_EQ(flops() - whole, 6.0 * 2048 * 3 * (routed * (512.0 / 2048 - 1) + projections));
}

TEST(ParameterCount, OfLatentExpertsByHand) {
  TransformerConfig config = moe_config();
  config.moe.latent_size = 512;
  config.add_bias_linear = true;  // counts the router's bias only
  const ParameterCount count =
      count_parameters(model_dimensions(config, 1024),
                       {.tensor_parallel = 2, .expert_parallel = 4, .expert_tensor_parallel = 2});
  const double h = 2048, attention = 2 * h * 128 * (16 + 4), norms = 2 * h;
  const double experts = 8.0 * 3 * 512 * 1024, shared = 3 * h * 1024;
  const double replicated = (h + 1) * 8 + 2 * h * 512;  // the router and the two projections
  EXPECT_EQ(count.transformer_block,
            4 * (attention + norms) + 3 * h * 8192 + h + 3 * (experts + shared + replicated));
  EXPECT_EQ(count.expert_most_loaded, 3 * experts / 8);
  EXPECT_EQ(count.dense_most_loaded, 4 * (attention / 2 + norms) + 3 * h * 8192 / 2 + h +
                                         3 * (shared / 2 + replicated) + 2 * h * 1024 / 2);
}

// Megatron-LM's formula with the sizes of DeepSeek-V2-Lite, whose queries have no latent, and with
// a latent of 1,536 channels.
TEST(ModelDimensions, OfLatentAttention) {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 2048;
  config.num_attention_heads = 16;
  config.multi_latent_attention = true;
  config.kv_lora_rank = 512;
  const double q = 2048 * 16 * 192, kv = 512 * (2048 + 16 * (128 + 128) + 1), shared = 2048 * 64,
               out = 16 * 128 * 2048;
  const ModelDimensions plain = model_dimensions(config, 1024);
  EXPECT_EQ(num_floating_point_operations(plain, 1.0, 0.0),
            6 * (q + kv + shared + out + 2048 * 1024));
  config.q_lora_rank = 1536;
  // With LayerNorm, which has two weights for each channel.
  EXPECT_EQ(count_parameters(model_dimensions(config, 1024), {}).transformer_block,
            1536.0 * (2048 + 16 * 192 + 2) + kv + 512 + shared + out + 3 * 2 * 2048);
  EXPECT_EQ(num_floating_point_operations(plain, 0.0, 1.0), 6.0 * 16 * (192 + 128) / 2);
}

// num_floating_point_operations() of Megatron-LM: a Mamba layer costs
// 2t·h·(2d + 2·G·N + H) + 7t·d·N + 2t·d·h forward with d = 2h, whatever its heads are, and a gated
// delta net 2t·(h·(2·qk + 2·v + 2·Hv) + conv·(2·qk + v) + 4·Hv·dv² + h·v).
TEST(ModelDimensions, OfRecurrentLayers) {
  TransformerConfig config;
  config.hidden_size = 1024;
  config.num_attention_heads = 16;
  config.kv_channels = 64;
  config.ffn_hidden_size = 4096;
  config.mamba.num_heads = 24;
  config.hybrid_layer_pattern = "MMG-";
  resolve_layers(config);
  const double h = 1024, d = 2048, qk = 16 * 128, v = 32 * 128, tokens = 10;
  const double mamba = h * (2 * d + 2 * 8 * 128 + 24) + 3.5 * d * 128 + d * h,
               delta =
                   h * (2 * qk + 2 * v + 2 * 32) + 4 * (2 * qk + v) + 4.0 * 32 * 128 * 128 + h * v,
               mlp = 2 * h * 4096, logits = h * 512;
  const ModelDimensions dimensions = model_dimensions(config, 512);
  EXPECT_EQ(num_floating_point_operations(dimensions, tokens, 0.0),
            6 * tokens * (2 * mamba + delta + mlp + logits));
  EXPECT_EQ(num_floating_point_operations(dimensions, 0.0, 1.0), 0) << "no attention";
  const double channels = 24 * 64, convolved = channels + 2 * 8 * 128;
  EXPECT_EQ(count_parameters(dimensions, {}).transformer_block,
            2 * (h * (convolved + channels + 24 + channels) + 4 * convolved) +
                h * (2 * qk + 2 * v + 2 * 32 + v) + 4 * (2 * qk + v) + mlp + 5 * 2 * h);
}

TEST(ModelDimensions, ComeFromAConfig) {
  TransformerConfig config;
  config.num_layers = 24;
  config.hidden_size = 1024;
  config.num_attention_heads = 16;
  config.kv_channels = 64;
  config.ffn_hidden_size = 4096;
  EXPECT_EQ(num_floating_point_operations(model_dimensions(config, 50304), std::int64_t{8},
                                          std::int64_t{1024}),
            18612240777216.0);
}

}  // namespace
}  // namespace megatron
