#include "megatron/inference/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/small_model.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/generator.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;

ChosenOptions chosen(const EngineSettings& settings, std::vector<CacheBudget> budgets,
                     std::int64_t trained_length = 4096) {
  TransformerConfig model;
  model.max_position_embeddings = trained_length;
  return engine_options(settings, model, budgets);
}

TEST(EngineOptions, TheCacheFitsOnEveryRank) {
  const std::vector<CacheBudget> budgets{{2 * kMebibyte, 8 * kGibibyte},
                                         {4 * kMebibyte, 8 * kGibibyte + 1},
                                         {1 * kMebibyte, 3 * kGibibyte}};
  EXPECT_EQ(chosen({}, budgets).options.scheduler.num_blocks, 2048);
  EXPECT_EQ(chosen({.buffer_size_gb = 1}, budgets).options.scheduler.num_blocks, 256);
  EXPECT_EQ(chosen({}, {{0, 0}}).options.scheduler.num_blocks, kMaxBlocks) << "no layer has one";
}

TEST(EngineOptions, FollowTheSettings) {
  const std::vector<CacheBudget> budget{{kMebibyte, kGibibyte}};
  const SchedulerOptions defaults = chosen({}, budget).options.scheduler;
  EXPECT_EQ(defaults.max_running, SchedulerOptions().max_running);
  EXPECT_EQ(defaults.max_step_tokens, SchedulerOptions().max_step_tokens);
  EXPECT_TRUE(defaults.chunked_prefill && defaults.prefix_cache);
  const SchedulerOptions few =
      chosen({.max_tokens = 16, .max_seq_length = 99}, budget).options.scheduler;
  EXPECT_EQ(few.max_running, 16) << "each has a token of a pass";
  EXPECT_EQ(few.max_sequence_length, 99);
  const SchedulerOptions many =
      chosen({.max_requests = 5000, .chunked_prefill = false, .prefix_caching = false}, budget)
          .options.scheduler;
  EXPECT_EQ(many.max_running, 5000);
  EXPECT_EQ(many.max_step_tokens, 5000);
  EXPECT_FALSE(many.chunked_prefill || many.prefix_cache);
}

TEST(EngineOptions, PausedTextsHaveAMemoryOfTheirOwn) {
  const std::vector<CacheBudget> budgets{{kMebibyte, kGibibyte}, {2 * kMebibyte, 2 * kGibibyte}};
  EXPECT_EQ(chosen({}, budgets).options.scheduler.num_swap_blocks, 0);
  const ChosenOptions swapping =
      chosen({.paused_buffer_size_gb = 0.5, .kv_cache_dtype = "fp8_e4m3"}, budgets);
  EXPECT_EQ(swapping.options.scheduler.num_swap_blocks, 256);
  EXPECT_EQ(swapping.options.kv_cache_type, KvCacheType::fp8_e4m3);
}

TEST(EngineOptions, ReserveMemoryForStates) {
  const std::vector<CacheBudget> budget{{kMebibyte, 4 * kGibibyte, 32 * kMebibyte}};
  const ChosenOptions states = chosen({}, budget);
  EXPECT_EQ(states.options.scheduler.max_running, 43) << "64 states in half of the memory";
  EXPECT_EQ(states.options.scheduler.max_snapshots, 21);
  EXPECT_EQ(states.options.scheduler.num_blocks, 2048);
  EXPECT_TRUE(states.options.scheduler.prefix_cache);
  EXPECT_EQ(states.note,
            "the states of a text take 32.0 MiB, so that 43 texts run at the same time; 21 states "
            "are kept for prompts that begin alike; the KV cache has room for 262144 tokens");
  const ChosenOptions whole = chosen({.prefix_caching = false}, budget);
  EXPECT_EQ(whole.options.scheduler.max_running, 64);
  const ChosenOptions scarce = chosen({}, {{kMebibyte, 4 * kGibibyte, 400 * kMebibyte}});
  EXPECT_EQ(scarce.options.scheduler.max_running, 5);
  EXPECT_FALSE(scarce.options.scheduler.prefix_cache);
  EXPECT_EQ(scarce.note,
            "the states of a text take 400.0 MiB, so that 5 texts run at the same time; prompts "
            "that begin alike are each computed; the KV cache has room for 268288 tokens");
  const ChosenOptions few = chosen({.max_requests = 4, .prefix_caching = false}, budget);
  EXPECT_EQ(few.options.scheduler.max_running, 4);
  EXPECT_EQ(few.options.scheduler.num_blocks, 4096 - 128);
  EXPECT_EQ(few.note,
            "the states of a text take 32.0 MiB; the KV cache has room for 507904 tokens");
  const ChosenOptions only_states = chosen({}, {{0, kGibibyte, kMebibyte}});
  EXPECT_EQ(only_states.options.scheduler.max_running, 256);
  EXPECT_EQ(only_states.options.scheduler.num_blocks, kMaxBlocks);
}

TEST(EngineOptions, SayWhenMemoryBindsTheCache) {
  const std::vector<CacheBudget> budget{{kMebibyte, 64 * kMebibyte}};
  EXPECT_EQ(chosen({}, budget, 64 * 128).note, "");
  EXPECT_EQ(chosen({}, budget, 64 * 128 + 1).note,
            "the KV cache has 64.0 MiB, 90 % of free memory, which is room for 8192 tokens");
  EXPECT_EQ(chosen({.max_seq_length = 9000}, budget).note, chosen({}, budget, 64 * 128 + 1).note);
  EXPECT_EQ(chosen({.buffer_size_gb = 0.01}, budget).note, "") << "the user asked for it";
  EXPECT_THAT(chosen({.buffer_size_gb = 40}, budget).note,
              testing::StartsWith(
                  "--inference-dynamic-batching-buffer-size-gb 40: the KV cache has 64.0 MiB"));
}

TEST(EngineOptions, AreRefusedWithNumbersWhenNoBlockFits) {
  const std::vector<CacheBudget> budgets{{kMebibyte, kGibibyte}, {3 * kMebibyte, kGibibyte}};
  EXPECT_THAT(message_of([&] { chosen({.buffer_size_gb = 0.001}, budgets); }),
              AllOf(HasSubstr("--inference-dynamic-batching-buffer-size-gb 0.001: a block of 128 "
                              "tokens needs "),
                    HasSubstr("fix: raise it")));
  EXPECT_THAT(
      message_of([&] {
        chosen({}, {{3 * kMebibyte, 2 * kMebibyte}});
      }),
      AllOf(HasSubstr("the KV cache: a block of 128 tokens needs 3.0 MiB, but only 2.0 MiB "
                      "is available (90 % of free memory)"),
            HasSubstr("fix: free some memory, run fewer ranks on this machine, or divide")));
  EXPECT_THAT(message_of([&] {
                chosen({.paused_buffer_size_gb = 1}, {{3 * kMebibyte, 2 * kMebibyte}});
              }),
              HasSubstr("lower --inference-dynamic-batching-paused-buffer-size-gb (on a CPU), or"));
}

/// A small GPT with latents or with heads.
struct LayeredModel {
  explicit LayeredModel(std::int64_t num_layers)
      : model(make_gpt_model(config(num_layers), Rank{})),
        weights(declared_parameters(*model), {.with_gradients = false}) {
    weights.initialize(/*seed=*/7);
  }
  static TransformerConfig config(std::int64_t num_layers) {
    TransformerConfig config;
    config.num_layers = num_layers;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.vocab_size = 61;
    config.position_embedding_type = PositionEmbedding::rope;
    resolve(config);
    return config;
  }
  std::unique_ptr<Model> model;
  ParamStore weights;
};

TEST(CacheBlockBytes, AreThoseOfAllLayers) {
  const LayeredModel one(1), three(3);
  const double bytes = cache_block_bytes(*one.model);
  EXPECT_GE(bytes, 128 * 2 * 32 * 4) << "keys and values in float32";
  EXPECT_EQ(cache_block_bytes(*three.model), 3 * bytes);
  EXPECT_LT(cache_block_bytes(*one.model, KvCacheType::int8), bytes);
  EXPECT_GT(free_cache_bytes({}, c10::kCPU, 1), 0);
  EXPECT_EQ(free_cache_bytes({.paused_buffer_size_gb = 1e9}, c10::kCPU, 1), 0);
  EXPECT_LE(free_cache_bytes({}, c10::kCPU, 2), free_cache_bytes({}, c10::kCPU, 1));
}

TEST(CacheBlockBytes, CountThoseOfADraftModelAndOfDepths) {
  const LayeredModel target(3), draft(1);
  const ModelRunner small(*draft.model);
  EXPECT_EQ(cache_block_bytes(*target.model, KvCacheType::same, {.draft_model = &small}),
            4 * cache_block_bytes(*draft.model));
  const SmallModel heads(7, /*mtp_depths=*/2);  // beside two layers
  EXPECT_EQ(
      cache_block_bytes(*heads.model, KvCacheType::same, {.config = {.num_speculative_tokens = 1}}),
      2 * cache_block_bytes(*heads.model));
}

TEST(Generator, RefusesAPromptThatItsCacheHasNoRoomFor) {
  const LayeredModel small(1);
  const std::vector<std::int64_t> ids(200, 3);
  const SamplingParams params{.temperature = 0, .max_new_tokens = 60};
  const Generator generator(*small.model, params, {.scheduler = {.num_blocks = 2}});
  EXPECT_THAT(message_of([&] { generator.generate(ids, 4); }),
              HasSubstr("prompt 5 of 200 tokens and up to 60 new ones: the KV cache has room for "
                        "256 tokens"));
  const std::vector<std::int64_t> shorter(150, 3);
  EXPECT_EQ(generator.generate(shorter, 4).ids,
            Generator(*small.model, params).generate(shorter, 4).ids);
}

TEST(BatchInvariance, IsRefusedWhereItDoesNotHold) {
  const EngineSettings asked{.batch_invariant_mode = true};
  TransformerConfig model;
  const auto message = [&](const EngineSettings& settings, c10::Device device,
                           c10::ScalarType type) {
    return message_of([&] { check_batch_invariance(settings, model, device, type); });
  };
  if (uses_own_gemm(c10::kBFloat16)) {
    EXPECT_EQ(message(asked, c10::kCPU, c10::kBFloat16), "no error");
  }
  EXPECT_THAT(message(asked, {c10::kCUDA, 0}, c10::kBFloat16),
              HasSubstr("--batch-invariant-mode: the library that multiplies bfloat16"));
  model.cache_mla_latents = true;
  EXPECT_THAT(message(asked, c10::kCPU, c10::kBFloat16), HasSubstr("--batch-invariant-mode"));
  EXPECT_EQ(message({}, {c10::kCUDA, 0}, c10::kBFloat16), "no error");
}

}  // namespace
}  // namespace megatron
