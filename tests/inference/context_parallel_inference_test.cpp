// The ranks of context parallelism share the rows of long passes. Texts, log-probabilities,
// embeddings, drafts and the experts of tokens have the bits that they have without cp.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "inference/small_model.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/scorer.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

struct Layout {
  std::int64_t cp = 1, tp = 1, pp = 1, ep = 1;
};

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.num_attention_heads = 4;
  config.vocab_size = SmallModel::kVocabSize;
  config.max_position_embeddings = 1024;
  config.init_method_std = 0.3;
  config.position_embedding_type = PositionEmbedding::rope;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  return config;
}

TransformerConfig windows_and_sinks() {
  TransformerConfig config = small_config();
  config.softmax_type = SoftmaxType::learnable;
  config.attn_logit_softcapping = 3;
  config.window_size = {60, 0};
  set_windows(config, {1, 0});
  return config;
}

TransformerConfig chunks() {
  TransformerConfig config = small_config();
  config.attention_chunk_size = 100;
  config.attn_temperature_scale = 0.5;
  config.attn_temperature_floor = 30;
  config.attention_output_gate = true;
  set_windows(config, {1, 0});
  set_nope(config, {0, 1});
  return config;
}

TransformerConfig latents() {
  TransformerConfig config = small_config();
  config.group_query_attention = false;
  config.multi_latent_attention = config.qk_layernorm = true;
  config.q_lora_rank = 20;
  config.kv_lora_rank = 12;
  config.qk_head_dim = 10;
  config.qk_pos_emb_head_dim = 6;
  config.v_head_dim = 14;
  return config;
}

TransformerConfig experts() {
  TransformerConfig config = small_config();
  config.activation = Activation::silu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.moe.num_experts = 6;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 24;
  config.moe.shared_expert_intermediate_size = 16;
  return config;
}

/// What an engine says, and what its passes sent over cp.
struct Answers {
  std::map<SequenceId, std::vector<Generation>> texts;
  std::vector<double> scores;          ///< of a long text
  std::int64_t num_accepted = 0;       ///< drafts
  std::int64_t num_calls = 0;          ///< over cp
  std::int64_t calls_of_few_rows = 0;  ///< the same, of a request of few tokens
};

/// Prompts of many lengths, of which some begin alike, for texts, scores and embeddings.
std::vector<TextRequest> requests(bool has_experts) {
  std::mt19937 random(3);
  const Ids prefix = random_ids(random, 300);
  std::vector<TextRequest> all;
  const auto add = [&](std::int64_t shared, std::int64_t own, SamplingParams params,
                       Pooling pooling = Pooling::none) {
    Ids prompt(prefix.begin(), prefix.begin() + shared);
    const Ids more = random_ids(random, own);
    prompt.insert(prompt.end(), more.begin(), more.end());
    all.push_back({.prompt = std::move(prompt),
                   .params = std::move(params),
                   .site = {.prompt = all.size()},
                   .pooling = pooling});
  };
  add(0, 517,
      {.temperature = 0,
       .max_new_tokens = 6,
       .logprobs = 2,
       .prompt_logprobs = true,
       .return_routed_experts = has_experts});
  add(300, 203, {.temperature = 0.9, .seed = 5, .max_new_tokens = 9, .logprobs = 1, .n = 2});
  add(0, 331, {}, Pooling::mean);
  add(0, 1, {.temperature = 0, .max_new_tokens = 12, .logprobs = 1});
  add(0, 37, {.temperature = 0, .max_new_tokens = 8, .logprobs = 1});
  add(300, 61, {.temperature = 0, .max_new_tokens = 4, .logprobs = 1});
  add(300, 3, {}, Pooling::last);
  return all;
}

std::map<SequenceId, std::vector<Generation>> run(Engine& engine,
                                                  const std::vector<TextRequest>& requests) {
  for (const TextRequest& request : requests) engine.add_request(request);
  std::map<SequenceId, std::vector<Generation>> texts;
  while (!engine.is_idle()) {
    for (Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      take_finished(update, texts[update.request]);
    }
  }
  return texts;
}

std::int64_t calls_over_cp(Communicators& communicators) {
  std::int64_t calls = 0;
  for (const CommCount& count : communicators.counters().take())
    if (count.axis == "cp") calls += count.calls;
  return calls;
}

/// Returns the answers of every rank.
std::vector<Answers> answers_of(TransformerConfig config, c10::ScalarType type,
                                const Layout& layout, std::int64_t max_step_tokens,
                                SpeculativeConfig drafts = {}) {
  resolve(config);
  ParallelConfig parallel;
  parallel.context_parallel_size = layout.cp;
  parallel.tensor_model_parallel_size = layout.tp;
  parallel.pipeline_model_parallel_size = layout.pp;
  parallel.expert_model_parallel_size = layout.ep;
  if (layout.ep > 1) parallel.expert_tensor_parallel_size = 1;
  const MeshSizes sizes = mesh_sizes(parallel);
  std::vector<Answers> all(
      static_cast<std::size_t>(std::max(sizes.tp * sizes.cp, sizes.ep) * sizes.pp));
  run_rank_threads(std::ssize(all), [&](Communicators& communicators) {
    const Rank rank = make_rank(Mesh(sizes, communicators.world_size()), communicators);
    const PipelineLayout stages_of = pipeline_layout(parallel, config);
    const auto stages =
        make_gpt_model(config, rank, MakeModelOptions{.dtype = type, .layout = &stages_of});
    ParamStore weights(declared_parameters(*stages),
                       {.dtype = type,
                        .with_gradients = false,
                        .model = rank.model,
                        .experts = ReplicaGroups{.model = rank.expert_model}});
    weights.initialize(7);
    const ModelRunner runner(*stages, weights, stages_of, rank.pp, rank.cp);
    Answers& here = all[static_cast<std::size_t>(rank.index)];
    SpeculationStats stats;
    Engine engine(runner, {.scheduler = {.max_running = 8, .max_step_tokens = max_step_tokens},
                           .speculation = {.config = drafts, .stats = &stats}});
    calls_over_cp(communicators);
    here.texts = run(engine, requests(config.moe.num_experts > 0));
    here.num_accepted = stats.num_accepted;
    std::mt19937 random(4);
    const Ids ids = random_ids(random, 401);
    here.scores = score_tokens(runner, ids, "ids").logprobs;
    here.num_calls = calls_over_cp(communicators);
    run(engine,
        {{.prompt = random_ids(random, 120), .params = {.temperature = 0, .max_new_tokens = 4}}});
    here.calls_of_few_rows = calls_over_cp(communicators);
  });
  return all;
}

void expect_same(const std::vector<SampledToken>& tokens, const std::vector<SampledToken>& expected,
                 double tolerance) {
  ASSERT_EQ(tokens.size(), expected.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(tokens[i].logprob, expected[i].logprob, tolerance) << "token " << i;
    ASSERT_EQ(tokens[i].best.size(), expected[i].best.size());
    if (tolerance > 0) continue;
    EXPECT_EQ(tokens[i].id, expected[i].id) << "token " << i;
    for (std::size_t j = 0; j < tokens[i].best.size(); ++j) {
      EXPECT_EQ(tokens[i].best[j].id, expected[i].best[j].id) << "token " << i;
      EXPECT_EQ(tokens[i].best[j].logprob, expected[i].best[j].logprob) << "token " << i;
    }
  }
}

/// Expects equal texts, or with a tolerance near log-probabilities of prompts.
void expect_same(const Answers& answers, const Answers& expected, double tolerance = 0) {
  EXPECT_EQ(answers.num_accepted, expected.num_accepted);
  ASSERT_EQ(answers.scores.size(), expected.scores.size());
  for (std::size_t i = 0; i < answers.scores.size(); ++i)
    EXPECT_NEAR(answers.scores[i], expected.scores[i], tolerance) << "token " << i;
  ASSERT_EQ(answers.texts.size(), expected.texts.size());
  for (const auto& [request, texts] : expected.texts) {
    SCOPED_TRACE("request " + std::to_string(request));
    const std::vector<Generation>& own = answers.texts.at(request);
    ASSERT_EQ(own.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      expect_same(own[i].prompt_tokens, texts[i].prompt_tokens, tolerance);
      ASSERT_EQ(own[i].embedding.size(), texts[i].embedding.size());
      for (std::size_t c = 0; c < texts[i].embedding.size(); ++c)
        EXPECT_NEAR(own[i].embedding[c], texts[i].embedding[c], tolerance);
      if (tolerance > 0) continue;
      EXPECT_EQ(own[i].ids, texts[i].ids);
      expect_same(own[i].tokens, texts[i].tokens, 0);
      EXPECT_EQ(own[i].routed_experts, texts[i].routed_experts);
    }
  }
}

/// Expects the answers of a layout to be those of the same layout without cp. Its ranks share
/// passes of at least 128 · cp tokens: most of the shorter passes here, which cut the prompts, too.
void expect_those_without_cp(const TransformerConfig& config, c10::ScalarType type,
                             const Layout& layout, const SpeculativeConfig& drafts = {},
                             double tolerance = 0) {
  if (!uses_own_gemm(type)) GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  const std::int64_t least = 128 * layout.cp;
  for (const std::int64_t max_step_tokens : {least + 34, std::int64_t{2048}}) {
    SCOPED_TRACE("cp " + std::to_string(layout.cp) + " tp " + std::to_string(layout.tp) + " pp " +
                 std::to_string(layout.pp) + " ep " + std::to_string(layout.ep) + ", passes of " +
                 std::to_string(max_step_tokens));
    Layout without = layout;
    without.cp = without.ep = 1;
    const Answers expected = answers_of(config, type, without, max_step_tokens, drafts).front();
    EXPECT_EQ(expected.texts.size(), requests(false).size());
    EXPECT_EQ(expected.num_calls, 0);
    for (const Answers& answers : answers_of(config, type, layout, max_step_tokens, drafts)) {
      EXPECT_GT(answers.num_calls, 0);
      EXPECT_EQ(answers.calls_of_few_rows, 0);
      expect_same(answers, expected, tolerance);
    }
  }
}

TEST(ContextParallelInference, SaysWhatOneRankSays) {
  for (const c10::ScalarType type : {c10::kBFloat16, c10::kFloat})
    for (const Layout& layout : {Layout{.cp = 2}, Layout{.cp = 3}})
      expect_those_without_cp(small_config(), type, layout);
}

TEST(ContextParallelInference, ComposesWithTensorsAndStages) {
  for (const Layout& layout : {Layout{.cp = 2, .tp = 2}, Layout{.cp = 2, .pp = 2}})
    expect_those_without_cp(small_config(), c10::kBFloat16, layout);
}

TEST(ContextParallelInference, HoldsWithWindowsSinksAndChunks) {
  for (const TransformerConfig& config : {windows_and_sinks(), chunks()})
    expect_those_without_cp(config, c10::kBFloat16, {.cp = 2});
}

TEST(ContextParallelInference, HoldsWithOtherPositions) {
  TransformerConfig alibi = small_config(), learned = small_config();
  alibi.position_embedding_type = PositionEmbedding::alibi;
  learned.position_embedding_type = PositionEmbedding::learned_absolute;
  for (const TransformerConfig& config : {alibi, learned})
    expect_those_without_cp(config, c10::kBFloat16, {.cp = 2});
}

TEST(ContextParallelInference, HoldsWithLatents) {
  expect_those_without_cp(latents(), c10::kBFloat16, {.cp = 2});
}

// ATen multiplies cached latents, and rounds by the number of rows.
TEST(ContextParallelInference, IsNearWithCachedLatents) {
  TransformerConfig config = latents();
  config.cache_mla_latents = true;
  expect_those_without_cp(config, c10::kFloat, {.cp = 2}, {}, 1e-4);
}

TEST(ContextParallelInference, HoldsWithExperts) {
  for (const Layout& layout :
       {Layout{.cp = 2}, Layout{.cp = 2, .ep = 2}, Layout{.cp = 2, .pp = 2, .ep = 2}})
    expect_those_without_cp(experts(), c10::kFloat, layout);
  expect_those_without_cp(experts(), c10::kFloat, {.cp = 2, .tp = 2});
}

// Which tokens of a pass reach an expert does not depend on how it is divided.
TEST(ContextParallelInference, HoldsWithTheCapacityOfExperts) {
  TransformerConfig config = experts();
  config.moe.expert_capacity_factor = 1;
  for (const Layout& layout : {Layout{.cp = 2}, Layout{.cp = 2, .tp = 2}})
    expect_those_without_cp(config, c10::kFloat, layout);
}

TEST(ContextParallelInference, HoldsWithDraftsOfTheModelsOwnHeads) {
  TransformerConfig config = small_config();
  config.mtp_num_layers = 2;
  expect_those_without_cp(
      config, c10::kBFloat16, {.cp = 2},
      {.num_speculative_tokens = 2, .speculative_method = SpeculativeMethod::mtp});
}

}  // namespace
}  // namespace megatron
