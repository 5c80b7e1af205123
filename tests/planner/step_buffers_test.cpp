// Expected bytes are worked out by hand from the shapes of the tensors that a pass holds. What the
// CPU's kernels lay out comes from their own plans.
#include "megatron/planner/step_buffers.h"

#include <gtest/gtest.h>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/fused_attention.h"

namespace megatron {
namespace {

constexpr std::int64_t kTokens = 512;  ///< of a rank

/// One layer of width 64: 8 heads in 2 groups of 8 channels, and an MLP of 96.
TransformerConfig small_model() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 64;
  config.num_attention_heads = 8;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.kv_channels = 8;
  config.ffn_hidden_size = 96;
  return config;
}

ActivationLayout over_cp(std::int64_t ranks) {
  return {.tokens = kTokens, .element_bytes = 2, .context_parallel = ranks};
}

AttentionBuffers kernels_of(std::int64_t queries, std::int64_t keys, std::int64_t heads,
                            std::int64_t groups) {
  return fused_attention_buffers({.sq = queries, .sk = keys, .n = heads, .g = groups, .d = 8},
                                 c10::kBFloat16);
}

/// Returns the bytes per token of a pass besides those of its kernels.
double per_token(double bytes, std::int64_t kernels) {
  return (bytes - static_cast<double>(kernels)) / kTokens;
}

TEST(StepBuffers, OfAttentionBackward) {
  const TransformerConfig model = small_model();
  const double q = 8 * 8, kv = 2 * 2 * 8;  // elements of a token
  EXPECT_EQ(per_token(attention_backward_bytes(model, over_cp(1), CpCommType::p2p, 1),
                      kernels_of(kTokens, kTokens, 8, 2).backward),
            2 * (q + q + kv))
      << "dout, dq, dk and dv";
  EXPECT_EQ(per_token(attention_backward_bytes(model, over_cp(4), CpCommType::p2p, 1),
                      kernels_of(kTokens / 2, kTokens / 2, 8, 2).backward),
            2 * q + 4 * q + 2 * 2 * kv + 3 * 4 * kv + (q + kv))
      << "dout, dq in float32, two parts of k and v, three of their gradients, those of a chunk";
  EXPECT_EQ(per_token(attention_backward_bytes(model, over_cp(4), CpCommType::all_gather, 1),
                      kernels_of(kTokens / 2, 4 * kTokens, 8, 2).backward),
            2 * (q + 1.5 * q + 2 * 4 * kv));
  EXPECT_EQ(per_token(attention_backward_bytes(model, over_cp(4), CpCommType::a2a, 1),
                      kernels_of(4 * kTokens, 4 * kTokens, 2, 1).backward),
            2 * (q + q + 2 * kv))
      << "each of 4 ranks has its copy of one of 2 groups";
}

TEST(StepBuffers, OfAnMlpAndItsGate) {
  EXPECT_EQ(mlp_backward_bytes(small_model(), 96, over_cp(1)), kTokens * 2 * 3 * 96);
  TransformerConfig gated = small_model();
  gated.gated_linear_unit = true;
  EXPECT_EQ(mlp_backward_bytes(gated, 96, over_cp(1)), kTokens * 2 * 4 * 96);
}

/// Returns the buffers of a step of one layer on a rank that keeps `stage`.
double buffers_of(
    const TransformerConfig& model, std::int64_t ranks, const StepShape& shape,
    StageActivations stage = {
        .whole = {{}}, .kept = {0}, .group_begin = {0}, .read_ahead = {0}, .offloaded = {0}}) {
  return step_buffer_bytes(model, over_cp(ranks), shape, stage);
}

TEST(StepBuffers, OfAnMlpHaveASecondGradientWithDropout) {
  const auto bytes = [](double dropout) {
    TransformerConfig model = small_model();
    model.ffn_hidden_size = 4096;  // so that its backward pass is the peak
    model.hidden_dropout = dropout;
    return buffers_of(model, 1, {.layers = {0}, .vocabulary = 128});
  };
  EXPECT_EQ(bytes(0.1) - bytes(0), 2 * 64 * kTokens);
}

// 64 MiB of logits in float32 and as many bytes of their gradients in bf16 are 256 and 512 tokens
// of a vocabulary of 65536.
TEST(StepBuffers, OfTheLossHaveBoundedLogits) {
  const auto logits = [](std::int64_t tokens) {
    ActivationLayout layout = over_cp(1);
    layout.tokens = tokens;
    return loss_bytes(small_model(), layout, 65536) - 3.0 * 2 * 64 * static_cast<double>(tokens);
  };
  EXPECT_EQ(logits(4096), 512 * 65536 * 2 + 256 * 65536 * 4);
  EXPECT_EQ(logits(256), 256 * 65536 * 2 + 256 * 65536 * 4);
}

// The copy of what the last layer offloads may not have ended when its loss is computed.
TEST(StepBuffers, OfTheLossHoldWhatWaitsToBeOffloaded) {
  const auto bytes = [](double offloaded) {
    return buffers_of(small_model(), 1, {.layers = {0}, .has_output = true, .vocabulary = 65536},
                      {.whole = {{}},
                       .kept = {0},
                       .group_begin = {0},
                       .read_ahead = {0},
                       .offloaded = {offloaded}});
  };
  EXPECT_EQ(bytes(1 << 20) - bytes(0), 1 << 20);
  EXPECT_EQ(bytes(1e12) - bytes(0), kMostOffloadInFlight);
}

// With p2p nothing but the places of all rows, 16 bytes each, grows with the whole sequence.
TEST(StepBuffers, OfARingAreThoseOfARanksTokens) {
  const StepShape shape{.layers = {0}, .vocabulary = 128};
  EXPECT_EQ(buffers_of(small_model(), 8, shape) - buffers_of(small_model(), 4, shape),
            16 * 4 * kTokens);
}

}  // namespace
}  // namespace megatron
