// The experts that a request is told of are those of a router that is computed directly.
#include <ATen/TensorOperators.h>
#include <ATen/ops/topk.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

#include "inference/small_model.h"
#include "megatron/base/error.h"
#include "megatron/inference/engine.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;
using RoutedExperts = std::vector<std::vector<std::vector<std::int32_t>>>;

constexpr std::int64_t kTopk = 2;
const std::vector<std::int64_t> kExpertLayers{1, 2};

/// A dense layer and two with experts, in float32.
struct ExpertModel {
  static TransformerConfig config(double capacity_factor) {
    TransformerConfig config = SmallModel::config(0, SmallModel::kVocabSize, 0);
    config.num_layers = 3;
    config.window_size = {};
    config.window_attn_skip_freq = {};
    config.activation = Activation::silu;
    config.gated_linear_unit = true;
    config.add_bias_linear = false;
    config.moe.num_experts = 6;
    config.moe.router_topk = kTopk;
    config.moe.ffn_hidden_size = 24;
    config.moe.layer_freq = "[0,1,1]";
    if (capacity_factor > 0) config.moe.expert_capacity_factor = capacity_factor;
    config.layers.clear();
    resolve(config);
    return config;
  }
  explicit ExpertModel(double capacity_factor = 0)
      : model(make_gpt_model(config(capacity_factor), Rank{})),
        weights(declared_parameters(*model), {.with_gradients = false}) {
    weights.initialize(7);
  }
  std::unique_ptr<Model> model;
  ParamStore weights;
};

/// Keeps the rows that the routers of a pass read.
class RouterInputs : public UnitHooks {
 public:
  void after_op(const std::string& op, const at::Tensor& output) override {
    if (op.ends_with("pre_mlp_layernorm")) rows[op] = output;
  }
  std::map<std::string, at::Tensor> rows;
};

/// Returns the experts with the largest logits x · wᵀ, of one pass over a whole text.
RoutedExperts direct_experts(ExpertModel& model, const Ids& ids) {
  RouterInputs inputs;
  {
    const UnitHooksScope scope(*model.model, inputs);
    const Microbatch microbatch = microbatch_of({std::span(ids)});
    model.model->infer({.microbatch = microbatch, .wants = Wants::hidden});
  }
  RoutedExperts experts(ids.size());
  for (const std::int64_t layer : kExpertLayers) {
    const std::string name = "decoder.layers." + std::to_string(layer);
    const at::Tensor x = inputs.rows.at(name + ".pre_mlp_layernorm").flatten(0, 1),
                     w = model.weights.find(name + ".mlp.router.weight")->value(),
                     best = std::get<1>(at::topk(x.matmul(w.t()), kTopk));
    for (std::size_t token = 0; token < ids.size(); ++token) {
      auto& chosen = experts[token].emplace_back();
      for (std::int64_t k = 0; k < kTopk; ++k)
        chosen.push_back(best[static_cast<std::int64_t>(token)][k].item<std::int32_t>());
      std::ranges::sort(chosen);
    }
  }
  return experts;
}

/// Compares the experts of a text with direct_experts().
void expect_experts(ExpertModel& model, Ids prompt, const Generation& text, bool has_stop_token) {
  const std::size_t size = prompt.size() + text.ids.size();
  prompt.insert(prompt.end(), text.ids.begin(), text.ids.end());
  RoutedExperts expected = direct_experts(model, prompt);
  expected.resize(text.ids.empty() || has_stop_token ? size : size - 1);
  EXPECT_EQ(text.routed_experts, expected);
}

/// Returns the texts of each request. Its caches are computed again after `step_of_recompute`.
std::map<SequenceId, std::vector<Generation>> run(Engine& engine, int step_of_recompute = -1) {
  std::map<SequenceId, std::vector<Generation>> texts;
  for (int step = 0; !engine.is_idle(); ++step) {
    if (step == step_of_recompute) engine.recompute_all();
    for (Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      take_finished(update, texts[update.request]);
    }
  }
  return texts;
}

// Samples that fork, prompts that begin alike and come in chunks, drafts and texts without experts
// share passes, and are preempted.
TEST(RoutedExperts, AreThoseOfTheRouter) {
  ExpertModel model;
  std::mt19937 random(5);
  Ids prompt = random_ids(random, 290);
  std::vector<TextRequest> requests;
  for (const std::int64_t max_new_tokens : {0, 1, 30, 40}) {
    prompt.push_back(3);
    for (const bool wants : {true, false})
      requests.push_back({.prompt = prompt,
                          .params = {.temperature = 0,
                                     .max_new_tokens = max_new_tokens,
                                     .return_routed_experts = wants},
                          .site = {.prompt = requests.size()}});
    requests.push_back({.prompt = random_ids(random, 20),
                        .params = {.seed = 3,
                                   .max_new_tokens = max_new_tokens,
                                   .stop_token_ids = {5, 7, 11},
                                   .n = 2,
                                   .return_routed_experts = true},
                        .site = {.prompt = requests.size()}});
  }
  for (const std::int64_t num_blocks : {5, 30}) {
    for (const std::int64_t num_drafts : {0, 3}) {
      EngineOptions options{
          .scheduler = {.max_running = 3, .max_step_tokens = 70, .num_blocks = num_blocks}};
      if (num_drafts > 0)
        options.speculation.config = {.num_speculative_tokens = num_drafts,
                                      .speculative_method = SpeculativeMethod::ngram,
                                      .ngram_prompt_lookup_min = 1};
      Engine engine(*model.model, options);
      std::map<SequenceId, std::size_t> numbers;
      for (const TextRequest& request : requests)
        numbers.emplace(engine.add_request(request), numbers.size());
      const auto results = run(engine, num_drafts > 0 ? 20 : -1);
      EXPECT_EQ(results.size(), requests.size());
      for (const auto& [id, texts] : results) {
        SCOPED_TRACE("request " + std::to_string(numbers.at(id)) + ", " +
                     std::to_string(num_blocks) + " blocks, drafts of " +
                     std::to_string(num_drafts));
        const TextRequest& request = requests[numbers.at(id)];
        EXPECT_EQ(std::ssize(texts), request.params.n);
        for (const Generation& text : texts) {
          if (request.params.return_routed_experts)
            expect_experts(model, request.prompt, text, text.finish_reason == FinishReason::stop);
          else
            EXPECT_TRUE(text.routed_experts.empty());
        }
      }
    }
  }
}

TEST(RoutedExperts, ExpertsThatDropTheirTokenCount) {
  ExpertModel model(/*capacity_factor=*/0.5);
  const TextRequest request{.prompt = {1, 1, 1, 1, 1, 1, 1, 1},
                            .params = {.max_new_tokens = 0, .return_routed_experts = true}};
  Engine engine(*model.model);
  engine.add_request(request);
  expect_experts(model, request.prompt, run(engine).begin()->second.front(), false);
}

TEST(RoutedExperts, ModelsWithoutThemAndBeamsAreRefused) {
  SmallModel dense;
  const SamplingParams wants{.return_routed_experts = true};
  const auto message = [](Model& model, const SamplingParams& params) {
    return message_of(
        [&] { Engine(model).add_request({.prompt = {1}, .params = params, .source = "text 7"}); });
  };
  EXPECT_THAT(message(*dense.model, wants),
              testing::HasSubstr("text 7: it has return_routed_experts, and the model has no "
                                 "experts"));
  ExpertModel model;
  SamplingParams beams = wants;
  beams.num_beams = 2;
  EXPECT_THAT(message(*model.model, beams),
              testing::HasSubstr("return_routed_experts: has no meaning with --num-beams"));
}

}  // namespace
}  // namespace megatron
