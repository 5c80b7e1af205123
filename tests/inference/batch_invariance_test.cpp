// A text has the same bits whatever shares its passes: other requests, found prefixes, cuts of its
// prompt, preemptions with and without swap, cancellations and drafts of n-grams change nothing.
// They are those that it has alone, and those of a forward pass over the whole text, as training
// computes it.
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "inference/small_model.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/engine.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kVocabSize = SmallModel::kVocabSize;

struct Variant {
  std::string name;
  TransformerConfig config;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

/// Small models whose attention is far from uniform.
std::vector<Variant> variants() {
  std::vector<Variant> result;
  const auto add = [&](std::string name, auto change) {
    TransformerConfig config;
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.vocab_size = kVocabSize;
    config.max_position_embeddings = 512;
    config.init_method_std = 0.3;
    config.position_embedding_type = PositionEmbedding::rope;
    config.group_query_attention = true;
    config.num_query_groups = 2;
    change(config);
    resolve(config);
    result.push_back({std::move(name), config});
  };
  add("grouped", [](TransformerConfig&) {});
  add("learned_positions", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::learned_absolute;
    c.group_query_attention = false;
  });
  add("one_group_alibi", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::alibi;
    c.num_query_groups = 1;
  });
  add("windows", [](TransformerConfig& c) {
    c.window_size = {40, 0};
    c.rotary_base_local = 100;
  });
  add("alternating_windows", [](TransformerConfig& c) {
    c.window_size = {150, 0};
    set_windows(c, {1, 0});
  });
  add("sinks", [](TransformerConfig& c) {
    c.softmax_type = SoftmaxType::learnable;
    c.window_size = {20, 0};
    set_windows(c, {0, 1});
  });
  add("softcap", [](TransformerConfig& c) {
    c.attn_logit_softcapping = 3;
    c.final_logit_softcapping = 5;
    c.norm_placement = NormPlacement::sandwich;
  });
  add("chunks", [](TransformerConfig& c) {
    c.attention_chunk_size = 100;
    c.attn_temperature_scale = 0.5;
    c.attn_temperature_floor = 30;
    c.attention_output_gate = c.qk_l2_norm = true;
    set_windows(c, {1, 0});
    set_nope(c, {0, 1});
  });
  add("latents", [](TransformerConfig& c) {
    c.group_query_attention = false;
    c.multi_latent_attention = c.qk_layernorm = true;
    c.q_lora_rank = 20;
    c.kv_lora_rank = 12;
    c.qk_head_dim = 10;
    c.qk_pos_emb_head_dim = 6;
    c.v_head_dim = 14;
  });
  add("experts", [](TransformerConfig& c) {
    c.activation = Activation::silu;
    c.gated_linear_unit = true;
    c.add_bias_linear = false;
    c.moe.num_experts = 6;
    c.moe.router_topk = 2;
    c.moe.ffn_hidden_size = 24;
    c.moe.shared_expert_intermediate_size = 16;
  });
  return result;
}

struct BoundModel {
  BoundModel(const TransformerConfig& config, c10::ScalarType type, bool packs_weights)
      : model(make_gpt_model(config, Rank{})),
        weights(declared_parameters(*model), {.dtype = type, .with_gradients = false}) {
    weights.initialize(/*seed=*/7);
    if (packs_weights)
      for (Parameter* parameter : weights.parameters()) parameter->pack();
  }
  std::unique_ptr<Model> model;
  ParamStore weights;
};

/// Returns a number from 0 to `end` − 1.
std::int64_t draw(std::mt19937& random, std::uint64_t end) {
  return static_cast<std::int64_t>(random() % end);
}

/// Half of the requests begin with a part of the same text.
std::vector<TextRequest> random_requests(std::mt19937& random) {
  const Ids prefix = random_ids(random, 300);
  std::vector<TextRequest> requests;
  for (std::uint64_t index = 0; index < 8; ++index) {
    const bool shares = random() % 2 == 0;
    Ids prompt(prefix.begin(), prefix.begin() + (shares ? draw(random, 300) : 0));
    const Ids own = random_ids(random, 1 + draw(random, shares ? 9 : 200));
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back({.prompt = prompt,
                        .params = {.temperature = index % 3 == 0 ? 0.0 : 0.9,
                                   .frequency_penalty = 0.1,
                                   .seed = 5,
                                   .max_new_tokens = draw(random, 25),
                                   .stop_token_ids = {7},
                                   .logprobs = 2,
                                   .prompt_logprobs = index % 4 == 1},
                        .site = {.prompt = index},
                        .priority = draw(random, 3)});
  }
  return requests;
}

/// Few blocks, so that requests are preempted, and few tokens in a pass, so that prompts are cut.
SchedulerOptions random_options(std::mt19937& random, bool prefix_cache) {
  SchedulerOptions options{.max_running = 1 + draw(random, 6), .prefix_cache = prefix_cache};
  options.max_step_tokens = options.max_running + draw(random, 70);
  options.num_blocks = 4 + draw(random, 5);
  options.num_swap_blocks = draw(random, 7);
  return options;
}

/// Adds the requests from time to time, beside some that are cancelled, and returns the results in
/// the order of the requests.
std::vector<Generation> serve(Engine& engine, std::span<const TextRequest> requests,
                              std::mt19937& random) {
  std::vector<Generation> results(requests.size());
  std::map<SequenceId, std::size_t> places;
  SequenceId cancelled = -1;  // none
  std::size_t num_results = 0;
  while (num_results < requests.size()) {
    while (places.size() < requests.size() && (engine.is_idle() || random() % 3 == 0))
      places.emplace(engine.add_request(requests[places.size()]), places.size());
    if (cancelled >= 0 && random() % 8 == 0) {
      engine.cancel(std::exchange(cancelled, -1));
    } else if (cancelled < 0 && random() % 16 == 0) {
      cancelled = engine.add_request(
          {.prompt = random_ids(random, 1 + draw(random, 150)), .params = {.max_new_tokens = 60}});
    }
    for (Update& update : engine.step()) {
      if (!update.finished || !places.contains(update.request)) continue;
      results[places.at(update.request)] = *std::move(update.finished);
      ++num_results;
    }
  }
  return results;
}

/// Returns what an engine says of a request that it serves alone.
Generation served_alone(Model& model, const TextRequest& request) {
  Engine engine(model);
  engine.add_request(request);
  std::optional<Generation> result;
  while (!engine.is_idle())
    for (Update& update : engine.step())
      if (update.finished) result = std::move(update.finished);
  return result.value();
}

void expect_same(const std::vector<SampledToken>& tokens,
                 const std::vector<SampledToken>& expected) {
  ASSERT_EQ(tokens.size(), expected.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const SampledToken &token = tokens[i], &other = expected[i];
    EXPECT_EQ(token.id, other.id) << "token " << i;
    EXPECT_EQ(token.logprob, other.logprob) << "token " << i;
    ASSERT_EQ(token.best.size(), other.best.size());
    for (std::size_t j = 0; j < token.best.size(); ++j) {
      EXPECT_EQ(token.best[j].id, other.best[j].id) << "token " << i;
      EXPECT_EQ(token.best[j].logprob, other.best[j].logprob) << "token " << i;
    }
  }
}

/// Expects every number of two results to be the same.
void expect_same(const Generation& result, const Generation& expected) {
  EXPECT_EQ(result.ids, expected.ids);
  EXPECT_EQ(result.finish_reason, expected.finish_reason);
  EXPECT_EQ(result.score, expected.score);
  expect_same(result.tokens, expected.tokens);
  expect_same(result.prompt_tokens, expected.prompt_tokens);
}

/// Expects the log-probabilities of a result to be those of a forward pass over the whole text.
void expect_those_of_training(Model& model, const Ids& prompt, const Generation& result) {
  const c10::InferenceMode no_gradients;
  Ids text = prompt;
  text.insert(text.end(), result.ids.begin(), result.ids.end());
  const Microbatch microbatch = microbatch_of({text});
  const at::Tensor logits =
      model.infer({.microbatch = microbatch, .wants = Wants::logits}).view({-1, kVocabSize});
  const auto expect = [&](const std::vector<SampledToken>& tokens, std::size_t first) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto row = row_of(logits, first - 1 + i);
      EXPECT_EQ(tokens[i].logprob, LogSoftmax(row)(row[static_cast<std::size_t>(tokens[i].id)]))
          << "position " << first + i;
    }
  };
  expect(result.prompt_tokens, 1);
  expect(result.tokens, prompt.size());
}

class BatchInvariance : public testing::TestWithParam<std::tuple<Variant, c10::ScalarType>> {};

TEST_P(BatchInvariance, ATextDoesNotDependOnWhatSharesItsPasses) {
  const auto& [variant, type] = GetParam();
  if (!uses_own_gemm(type)) GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  const BoundModel trained(variant.config, type, /*packs_weights=*/false),
      served(variant.config, type, /*packs_weights=*/true);
  std::mt19937 random(3);
  for (int round = 0; round < 2; ++round) {
    const std::vector<TextRequest> requests = random_requests(random);
    const bool speculates = round == 1;
    Engine engine(*served.model,
                  {.scheduler = random_options(random, /*prefix_cache=*/round == 0),
                   .speculation = {.config = {.num_speculative_tokens = speculates ? 3 : 0,
                                              .speculative_method = SpeculativeMethod::ngram,
                                              .ngram_prompt_lookup_min = 1}}});
    const std::vector<Generation> results = serve(engine, requests, random);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(i));
      expect_same(results[i], served_alone(*served.model, requests[i]));
      expect_those_of_training(*trained.model, requests[i].prompt, results[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, BatchInvariance,
                         testing::Combine(testing::ValuesIn(variants()),
                                          testing::Values(c10::kFloat, c10::kBFloat16)),
                         [](const auto& info) {
                           return std::get<Variant>(info.param).name + "_" +
                                  c10::toString(std::get<c10::ScalarType>(info.param));
                         });

}  // namespace
}  // namespace megatron
