// Cost formulas against the values of Megatron-LM's own functions for three models (dense, mixture
// of experts, Mamba hybrid).
#include "megatron/models/model_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  // Pattern M-M*M-M*
  const HybridDimensions hybrid{
      .model = gpt_345m(), .num_attention_layers = 2, .num_mamba_layers = 4, .num_mlp_layers = 2};
  EXPECT_EQ(num_floating_point_operations(hybrid, 4.0 * 2048, 4.0 * 2048 * 2048), 5811090751488.0);
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
