// Texts of models with recurrent layers: a state that goes on token by token, or from one part of a
// prompt to the next, is the state that one pass over the whole text computes.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "inference/small_model.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/engine_options.h"
#include "megatron/inference/scorer.h"
#include "megatron/models/gpt_model.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kVocabSize = SmallModel::kVocabSize;

/// Mamba-2 layers, a gated delta net, and attention between them.
TransformerConfig hybrid_config(const std::string& pattern) {
  TransformerConfig config;
  config.hybrid_layer_pattern = pattern;
  config.hidden_size = 32;
  config.num_attention_heads = 4;
  config.vocab_size = kVocabSize;
  config.max_position_embeddings = 512;
  config.init_method_std = 0.3;
  config.normalization = Normalization::RMSNorm;
  config.position_embedding_type = PositionEmbedding::none;
  config.mamba = {.state_dim = 16, .head_dim = 8, .num_groups = 2};
  config.linear_attention.key_head_dim = config.linear_attention.value_head_dim = 8;
  config.linear_attention.num_key_heads = 2;
  config.linear_attention.num_value_heads = 4;
  resolve(config);
  return config;
}

struct HybridModel {
  explicit HybridModel(const std::string& pattern = "M-*GM-")
      : config(hybrid_config(pattern)),
        model(make_model(hybrid_spec(config), config, Rank{}, {})),
        weights(declared_parameters(*model), {.dtype = c10::kFloat, .with_gradients = false}) {
    weights.initialize(/*seed=*/7);
  }
  TransformerConfig config;
  std::unique_ptr<Model> model;
  ParamStore weights;
};

std::map<SequenceId, std::vector<Generation>> run(Engine& engine) {
  std::map<SequenceId, std::vector<Generation>> results;
  while (!engine.is_idle())
    for (Update& update : engine.step()) take_finished(update, results[update.request]);
  return results;
}

/// Compares the log-probabilities of a text with those of one pass over all of it.
void expect_scores(const HybridModel& hybrid, const Ids& prompt, const Generation& text) {
  Ids whole = prompt;
  whole.insert(whole.end(), text.ids.begin(), text.ids.end());
  const Score score = score_tokens(ModelRunner(*hybrid.model), whole, "text");
  const std::size_t first = prompt.size() - 1;
  for (std::size_t i = 0; i < text.prompt_tokens.size(); ++i)
    EXPECT_NEAR(text.prompt_tokens[i].logprob, score.logprobs[i], 1e-3) << "prompt, " << i;
  ASSERT_EQ(text.tokens.size(), text.ids.size());
  for (std::size_t i = 0; i < text.tokens.size(); ++i)
    EXPECT_NEAR(text.tokens[i].logprob, score.logprobs[first + i], 1e-3)
        << "token " << i << " behind " << prompt.size();
}

TextRequest request_of(const Ids& prompt, std::int64_t n = 1) {
  return {.prompt = prompt,
          .params = {.temperature = 0.9,
                     .seed = 5,
                     .max_new_tokens = 20,
                     .logprobs = 1,
                     .prompt_logprobs = true,
                     .n = n}};
}

/// Serves prompts of many lengths together, and compares every text.
void expect_texts(const SchedulerOptions& options, const std::string& pattern) {
  const HybridModel hybrid(pattern);
  ASSERT_TRUE(hybrid.model->keeps_states());
  Engine engine(*hybrid.model, {.scheduler = options});
  std::mt19937 random(3);
  const Ids beginning = random_ids(random, 140);
  std::map<SequenceId, Ids> prompts;
  for (const std::int64_t length : {1, 3, 9, 64, 65, 130, 200}) {
    Ids prompt = random_ids(random, length);
    if (length > 64)
      std::copy_n(beginning.begin(), std::min<std::int64_t>(length, 140), prompt.begin());
    prompts[engine.add_request(request_of(prompt, length == 9 ? 3 : 1))] = prompt;
  }
  for (const auto& [id, texts] : run(engine))
    for (const Generation& text : texts) expect_scores(hybrid, prompts.at(id), text);
}

TEST(RecurrentLayers, GoOnFromPromptsInOnePass) {
  for (const char* pattern : {"M-*GM-", "MM"})
    expect_texts({.max_step_tokens = 1024, .prefix_cache = false}, pattern);
}

TEST(RecurrentLayers, GoOnFromPartsOfPrompts) {
  expect_texts({.max_running = 4, .max_step_tokens = 37, .prefix_cache = false}, "M-*GM-");
}

// With few blocks, texts are preempted and computed again.
TEST(RecurrentLayers, BeginAgainWhenATextIsPreempted) {
  for (const std::int64_t num_swap_blocks : {0, 3})
    expect_texts({.max_running = 6,
                  .max_step_tokens = 70,
                  .num_blocks = 4,
                  .prefix_cache = false,
                  .num_swap_blocks = num_swap_blocks},
                 "M*G");
}

TEST(RecurrentLayers, BeginBehindASnapshot) {
  expect_texts({.max_running = 1, .max_step_tokens = 256}, "M*G");
  const HybridModel hybrid("M*G");
  Engine engine(*hybrid.model, {});
  std::mt19937 random(5);
  const Ids prompt = random_ids(random, 150);
  engine.add_request(request_of(prompt));
  run(engine);
  TextRequest again = request_of(prompt);
  again.params.prompt_logprobs = false;
  engine.add_request(again);
  const Generation text = run(engine).begin()->second.front();
  EXPECT_EQ(text.num_cached, 128);
  expect_scores(hybrid, prompt, text);
}

TEST(RecurrentLayers, TellTheMemoryOfTheirStates) {
  const HybridModel hybrid("MG*");
  // Mamba-2: 8 heads, states [16, 8], 64 + 2·2·16 channels; the delta net: 4 heads, [8, 8], 64.
  const double mamba = 8 * 16 * 8 + 128 * 3, delta_net = 4 * 8 * 8 + 64 * 3;
  EXPECT_EQ(cache_state_bytes(ModelRunner(*hybrid.model)), 4 * (mamba + delta_net));
  const SmallModel small;
  EXPECT_EQ(cache_state_bytes(ModelRunner(*small.model)), 0);
}

TEST(RecurrentLayers, AreRefusedWhereBitsMustNotDependOnPasses) {
  const std::string message = message_of([] {
    check_batch_invariance({.batch_invariant_mode = true}, hybrid_config("M*"), c10::kCPU,
                           c10::kFloat);
  });
  EXPECT_NE(message.find("recurrent layers"), std::string::npos) << message;
}

}  // namespace
}  // namespace megatron
