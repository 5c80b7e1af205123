// Expected FLOPs: the first vector was computed with Megatron-LM's num_floating_point_operations;
// full attention adds 6·B·s²·h·L by hand.
#include "megatron/training/observability/throughput.h"

#include <gtest/gtest.h>

#include "megatron/planner/device_peak.h"

namespace megatron {
namespace {

/// GPT-3 medium: 24 layers, hidden 1024, 16 heads, vocabulary 50304, sequences of 1024.
ModelDimensions gpt_medium() {
  return {.num_layers = 24,
          .hidden_size = 1024,
          .num_attention_heads = 16,
          .query_groups = 16,
          .kv_channels = 64,
          .ffn_hidden_size = 4096,
          .padded_vocab_size = 50304};
}

TEST(SampleFlops, AreMegatronsAndPaLMs) {
  const SampleFlops flops = sample_flops(gpt_medium(), 1, 1024);
  EXPECT_EQ(flops.causal * 8, 18612240777216.0);
  EXPECT_EQ(flops.full * 8, 18612240777216.0 + 6.0 * 8 * 1024 * 1024 * 1024 * 24);
  // PaLM, appendix B: 6N + 12·L·H·Q·T per token, N without position embeddings, norms and biases.
  const double n = 24 * 12.0 * 1024 * 1024 + 50304.0 * 1024;
  EXPECT_EQ(flops.full, 1024 * (6 * n + 12.0 * 24 * 16 * 64 * 1024));
}

/// A question with choices: none attends to another.
TEST(SampleFlops, AreThoseOfEachSequence) {
  const SampleFlops one = sample_flops(gpt_medium(), 1, 512),
                    four = sample_flops(gpt_medium(), 4, 512);
  EXPECT_EQ(four.causal, 4 * one.causal);
  EXPECT_EQ(four.full, 4 * one.full);
}

TEST(ThroughputMeter, DividesByTimeDevicesAndPeak) {
  const ThroughputMeter meter({.causal = 900, .full = 1000}, 500.0, 2);
  const ThroughputMetrics rates = meter.rates({.samples = 4, .tokens = 80, .seconds = 10});
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 8);
  EXPECT_DOUBLE_EQ(rates.flops_per_second, 180);
  EXPECT_DOUBLE_EQ(*rates.mfu, 0.4);
  EXPECT_DOUBLE_EQ(*rates.mfu_causal, 0.36);
}

/// Four samples, half of which is padding: a half of their other work, and a quarter of the scores.
TEST(ThroughputMeter, LeavesOutPadding) {
  const ThroughputMeter meter({.causal = 900, .full = 1000}, 500.0, 2);
  const ThroughputMetrics rates =
      meter.rates({.samples = 2, .tokens = 80, .seconds = 10, .squared_samples = 1});
  EXPECT_DOUBLE_EQ(rates.flops_per_second, (2 * 800 + 100) / 20.0);
  EXPECT_DOUBLE_EQ(*rates.mfu_causal, rates.flops_per_second / 500);
  EXPECT_DOUBLE_EQ(*rates.mfu, (2 * 800 + 200) / 20.0 / 500);
}

TEST(ThroughputMeter, KnowsNothingWithoutTimeOrPeak) {
  EXPECT_EQ(ThroughputMeter({}, 1.0).rates({.tokens = 5, .seconds = 0}).tokens_per_second, 0);
  EXPECT_FALSE(ThroughputMeter({.causal = 1, .full = 1}, std::nullopt)
                   .rates({.samples = 1, .tokens = 1, .seconds = 1})
                   .mfu);
}

TEST(GpuPeak, IsTheDataSheetsDenseOne) {
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 80GB HBM3", c10::kBFloat16), 989.4e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 PCIe", c10::kBFloat16), 756e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H200", c10::kHalf), 989.4e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA A100-SXM4-40GB", c10::kFloat), 19.5e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA B200", c10::kBFloat16), 2250e12);
  EXPECT_EQ(gpu_peak_bandwidth("NVIDIA A100-SXM4-80GB"), 2039e9);
  EXPECT_FALSE(gpu_peak_flops("Somebody's GPU", c10::kBFloat16));
  EXPECT_FALSE(gpu_peak_flops("NVIDIA H100", c10::kDouble));
}

TEST(MeasuredPeak, IsPositive) {
  EXPECT_GT(measured_peak_flops(c10::kCPU, c10::kFloat), 1e8);
  EXPECT_GT(measured_peak_bandwidth(c10::kCPU), 1e7);
}

}  // namespace
}  // namespace megatron
