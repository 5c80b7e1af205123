#include "megatron/inference/engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "inference/small_model.h"
#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/config/resolve.h"
#include "megatron/inference/scorer.h"
#include "megatron/ops/matmul.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

/// Runs an engine until it is idle and returns the results.
std::map<SequenceId, Generation> run(Engine& engine) {
  std::map<SequenceId, Generation> results;
  while (!engine.is_idle()) {
    for (const Update& update : engine.step()) {
      EXPECT_FALSE(results.contains(update.request)) << "news after the end";
      if (update.finished) results.emplace(update.request, *update.finished);
    }
  }
  return results;
}

/// Describes updates in short.
std::vector<std::string> words(const std::vector<Update>& updates) {
  std::vector<std::string> result;
  for (const Update& update : updates)
    result.push_back(std::to_string(update.request) + ":" +
                     (update.token ? " " + std::to_string(*update.token) : "") +
                     (update.finished
                          ? " " + std::string(finish_reason_name(update.finished->finish_reason))
                          : ""));
  return result;
}

using Words = std::vector<std::string>;

// Random requests share passes, blocks and prefixes, wait, are preempted and cut into pieces.
TEST(Engine, ATextDoesNotDependOnWhatSharesItsPasses) {
  SmallModel small;
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(3);
  const Ids prefix = random_ids(random, 300);
  for (int round = 0; round < 6; ++round) {
    std::vector<TextRequest> requests;
    for (std::uint64_t index = 0; index < 9; ++index) {
      const bool shares = random() % 2 == 0;
      Ids prompt(prefix.begin(),
                 prefix.begin() + static_cast<std::ptrdiff_t>(shares ? random() % 300 : 0));
      const Ids own =
          random_ids(random, static_cast<std::int64_t>(1 + random() % (shares ? 9 : 200)));
      prompt.insert(prompt.end(), own.begin(), own.end());
      requests.push_back({.prompt = prompt,
                          .params = {.temperature = index % 3 == 0 ? 0.0 : 0.9,
                                     .frequency_penalty = 0.1,
                                     .seed = 5,
                                     .max_new_tokens = static_cast<std::int64_t>(random() % 40),
                                     .stop_token_ids = {7}},
                          .site = {.prompt = index},
                          .priority = static_cast<std::int64_t>(random() % 3)});
    }
    SchedulerOptions scheduler{.max_running = 1 + static_cast<std::int64_t>(random() % 6)};
    scheduler.max_step_tokens = scheduler.max_running + static_cast<std::int64_t>(random() % 70);
    scheduler.num_blocks = 4 + static_cast<std::int64_t>(random() % 5);
    scheduler.prefix_cache = round % 2 == 0;
    scheduler.num_swap_blocks = static_cast<std::int64_t>(random() % 7);
    const auto kv_cache_type = static_cast<KvCacheType>(round % 3);
    Engine engine(*small.model, {.scheduler = scheduler, .kv_cache_type = kv_cache_type});
    std::map<SequenceId, std::size_t> places;
    for (const TextRequest& request : requests)
      places.emplace(engine.add_request(request), places.size());
    const auto results = run(engine);
    ASSERT_EQ(results.size(), requests.size());
    for (const auto& [id, result] : results) {
      Engine alone(*small.model, {.kv_cache_type = kv_cache_type});
      const SequenceId own = alone.add_request(requests[places.at(id)]);
      EXPECT_EQ(run(alone).at(own).ids, result.ids) << "round " << round << ", request " << id;
    }
  }
}

/// Runs an engine until it is idle and returns the texts of each request.
std::map<SequenceId, std::vector<Generation>> run_all(Engine& engine) {
  std::map<SequenceId, std::vector<Generation>> results;
  std::map<SequenceId, bool> has_ended;
  while (!engine.is_idle()) {
    for (const Update& update : engine.step()) {
      EXPECT_FALSE(std::exchange(has_ended[update.request], update.is_last))
          << "news after the end";
      if (!update.finished) continue;
      std::vector<Generation>& texts = results[update.request];
      const auto text = static_cast<std::size_t>(update.text);
      texts.resize(std::max(texts.size(), text + 1));
      texts[text] = *update.finished;
    }
  }
  for (const auto& [request, ended] : has_ended) EXPECT_TRUE(ended) << "request " << request;
  EXPECT_EQ(engine.scheduler().pool().num_available(), engine.scheduler().pool().num_blocks());
  return results;
}

/// Compares texts, their scores and the log-probabilities of the prompt, bit for bit.
void expect_equal(const std::vector<Generation>& texts, const std::vector<Generation>& expected) {
  ASSERT_EQ(texts.size(), expected.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].ids, expected[i].ids) << i;
    EXPECT_EQ(texts[i].finish_reason, expected[i].finish_reason) << i;
    EXPECT_EQ(texts[i].score, expected[i].score) << i;
    ASSERT_EQ(texts[i].prompt_tokens.size(), expected[i].prompt_tokens.size()) << i;
    for (std::size_t k = 0; k < texts[i].prompt_tokens.size(); ++k)
      EXPECT_EQ(texts[i].prompt_tokens[k].logprob, expected[i].prompt_tokens[k].logprob) << k;
  }
}

// Samples that fork, beams that are held, scored prompts and plain texts share passes and blocks,
// wait and are preempted.
TEST(Engine, SamplesBeamsAndScoresDoNotDependOnWhatSharesTheirPasses) {
  SmallModel small;
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(4);
  for (int round = 0; round < 6; ++round) {
    std::vector<TextRequest> requests;
    for (std::uint64_t index = 0; index < 8; ++index) {
      SamplingParams params{.seed = 5,
                            .max_new_tokens = static_cast<std::int64_t>(random() % 12),
                            .stop_token_ids = {7}};
      if (index % 4 == 1) params.num_beams = 3, params.n = 2, params.repetition_penalty = 1.1;
      if (index % 4 == 2) params.n = 2, params.best_of = 3;
      if (index % 4 == 3) params.n = 3;
      params.prompt_logprobs = random() % 2 == 0;
      requests.push_back(
          {.prompt = random_ids(random, static_cast<std::int64_t>(1 + random() % 200)),
           .params = params,
           .site = {.prompt = index},
           .priority = static_cast<std::int64_t>(random() % 2)});
    }
    SchedulerOptions scheduler{.max_running = 2 + static_cast<std::int64_t>(random() % 8)};
    scheduler.max_step_tokens = scheduler.max_running + static_cast<std::int64_t>(random() % 70);
    scheduler.num_blocks = 4 + static_cast<std::int64_t>(random() % 8);
    scheduler.prefix_cache = round % 2 == 0;
    if (round % 3 == 0) scheduler.max_step_outputs = 11;
    Engine engine(*small.model, {.scheduler = scheduler});
    std::map<SequenceId, std::size_t> places;
    for (const TextRequest& request : requests)
      places.emplace(engine.add_request(request), places.size());
    const auto results = run_all(engine);
    ASSERT_EQ(results.size(), requests.size());
    for (const auto& [id, texts] : results) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(id));
      Engine alone(*small.model);
      const SequenceId own = alone.add_request(requests[places.at(id)]);
      expect_equal(texts, run_all(alone).at(own));
    }
  }
}

TEST(Engine, EachSampleIsTheTextOfItsNumberAlone) {
  SmallModel small;
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(5);
  TextRequest request{.prompt = random_ids(random, 140),
                      .params = {.repetition_penalty = 1.2,
                                 .max_new_tokens = 20,
                                 .stop_token_ids = {7, 8},
                                 .return_log_probs = true,
                                 .n = 5},
                      .site = {.prompt = 3}};
  Engine together(*small.model);
  together.add_request(request);
  const std::vector<Generation> texts = run_all(together).at(0);
  ASSERT_EQ(texts.size(), 5u);
  request.params.n = 1;
  for (; request.site.sample < texts.size(); ++request.site.sample) {
    Engine alone(*small.model);
    alone.add_request(request);
    expect_equal({texts[request.site.sample]}, run_all(alone).at(0));
  }
}

TEST(Engine, RequestsMayBringTheirNames) {
  SuccessorModel model(50);
  Engine engine(model);
  const SamplingParams one{.temperature = 0, .max_new_tokens = 1};
  EXPECT_EQ(engine.add_request({.prompt = {3}, .params = one, .id = 70}), 70);
  engine.add_request({.prompt = {3}, .params = one, .id = 8});
  EXPECT_TRUE(engine.cancel(8));
  const std::vector<Update> updates = engine.step();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].request, 70);
}

TEST(Engine, ScoresOfAPromptAreThoseOfTheScorer) {
  SmallModel small;
  std::mt19937 random(6);
  const Ids prompt = random_ids(random, 300);
  Engine engine(*small.model, {.scheduler = {.max_running = 1, .max_step_tokens = 70}});
  engine.add_request(
      {.prompt = prompt, .params = {.max_new_tokens = 3, .logprobs = 2, .prompt_logprobs = true}});
  const std::vector<SampledToken> tokens = run_all(engine).at(0).front().prompt_tokens;
  const Score score = score_tokens(*small.model, prompt, "ids");
  ASSERT_EQ(tokens.size(), 299u);
  ASSERT_EQ(score.logprobs.size(), 299u);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].id, prompt[i + 1]);
    if (uses_own_gemm(c10::kBFloat16)) {
      EXPECT_EQ(tokens[i].logprob, score.logprobs[i]) << i;
    } else {
      EXPECT_NEAR(tokens[i].logprob, score.logprobs[i], 5e-2) << i;
    }
    ASSERT_EQ(tokens[i].best.size(), 2u);
    EXPECT_GE(tokens[i].best[0].logprob, tokens[i].logprob);
  }
}

/// Returns the output rows of the final norm of a text that is computed alone [tokens, h].
at::Tensor hidden_rows(Model& model, const Ids& ids) {
  const Microbatch microbatch = microbatch_of({std::span(ids)});
  return model.infer({.microbatch = microbatch, .wants = Wants::hidden}).squeeze(0);
}

// Embeddings share passes and blocks with texts. Their prompts come in chunks, begin alike, and are
// preempted.
TEST(Engine, EmbeddingsPoolTheHiddenRowsOfTheirPrompts) {
  SmallModel small;
  std::mt19937 random(5);
  Ids prompt = random_ids(random, 300);
  std::vector<TextRequest> requests;
  for (const Pooling pooling : {Pooling::mean, Pooling::last, Pooling::mean, Pooling::last}) {
    prompt.push_back(pooling == Pooling::mean ? 3 : 4);
    requests.push_back({.prompt = prompt, .pooling = pooling, .normalizes = requests.size() > 1});
    requests.push_back({.prompt = random_ids(random, 50), .params = {.max_new_tokens = 100}});
  }
  for (const std::int64_t num_blocks : {5, 20}) {
    Engine engine(
        *small.model,
        {.scheduler = {.max_running = 3, .max_step_tokens = 70, .num_blocks = num_blocks}});
    std::map<SequenceId, std::size_t> numbers;
    for (const TextRequest& request : requests)
      numbers.emplace(engine.add_request(request), numbers.size());
    for (const auto& [id, texts] : run_all(engine)) {
      const TextRequest& request = requests[numbers.at(id)];
      const std::vector<float>& embedding = texts.at(0).embedding;
      EXPECT_EQ(texts[0].ids.empty(), request.pooling != Pooling::none);
      if (request.pooling == Pooling::none) {
        EXPECT_TRUE(embedding.empty());
        continue;
      }
      const at::Tensor rows = hidden_rows(*small.model, request.prompt).to(c10::kDouble);
      at::Tensor expected = request.pooling == Pooling::mean ? rows.mean(0) : rows[-1];
      if (request.normalizes) expected = expected / expected.norm();
      ASSERT_EQ(std::ssize(embedding), expected.numel());
      for (std::size_t i = 0; i < embedding.size(); ++i)
        EXPECT_NEAR(embedding[i], expected[static_cast<std::int64_t>(i)].item<double>(), 0.05);
      if (!uses_own_gemm(c10::kBFloat16)) continue;
      Engine alone(*small.model);
      alone.add_request(request);
      EXPECT_EQ(embedding, run(alone).begin()->second.embedding)
          << "request " << id << ", " << num_blocks << " blocks";
    }
  }
}

TEST(Pooler, CountsEachRowOnce) {
  Pooler mean(Pooling::mean, 5);
  EXPECT_EQ(mean.num_rows(0, 2), 2);
  mean.add(at::ones({2, 1}));
  EXPECT_EQ(mean.num_rows(0, 1), 0) << "after preemption";
  EXPECT_EQ(mean.num_rows(1, 4), 2);
  mean.add(at::ones({2, 1}) * 4);
  EXPECT_EQ(mean.num_rows(4, 5), 1);
  mean.add(at::ones({1, 1}) * 5);
  EXPECT_EQ(mean.embedding(false), std::vector<float>{3});
  EXPECT_EQ(mean.embedding(true), std::vector<float>{1});
  EXPECT_EQ(Pooler(Pooling::last, 5).num_rows(0, 4), 0);
  EXPECT_EQ(Pooler(Pooling::last, 5).num_rows(2, 5), 1);
  EXPECT_EQ(Pooler(Pooling::none, 5).num_rows(0, 5), 0);
}

TEST(Engine, ADamagedEmbeddingIsAnError) {
  SmallModel small;
  small.weights.parameters().front()->value().fill_(std::nanf(""));
  Engine engine(*small.model);
  engine.add_request({.prompt = {1, 2}, .source = "text 7", .pooling = Pooling::mean});
  const std::vector<Update> updates = engine.step();
  ASSERT_EQ(updates.size(), 1u);
  ASSERT_TRUE(updates[0].error);
  EXPECT_THAT(message_of([&] { std::rethrow_exception(updates[0].error); }),
              testing::HasSubstr("text 7: the embedding"));
}

/// Counts the tokens and the rows of logits of each pass.
class CountingModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  using Counts = std::vector<std::pair<std::int64_t, std::int64_t>>;
  Counts counts;
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass,
                            const Activations& activations) override {
    counts.emplace_back(pass.microbatch.at("tokens").numel(), num_last_rows(pass, pass.num_logits));
    return SuccessorModel::forward_chunk(chunk, pass, activations);
  }
};

TEST(Engine, ComputesTheLogitsThatAreUsed) {
  const auto counts = [](const SamplingParams& params) {
    CountingModel model(50);
    Engine engine(model, {.scheduler = {.max_running = 4, .max_step_tokens = 4}});
    engine.add_request({.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9}, .params = params});
    run_all(engine);
    return model.counts;
  };
  using Counts = CountingModel::Counts;
  EXPECT_EQ(counts({.max_new_tokens = 2}), (Counts{{4, 0}, {4, 0}, {1, 1}, {1, 1}}));
  EXPECT_EQ(counts({.max_new_tokens = 2, .prompt_logprobs = true}),
            (Counts{{4, 4}, {4, 4}, {1, 1}, {1, 1}}));
  EXPECT_EQ(counts({.max_new_tokens = 0, .prompt_logprobs = true}), (Counts{{4, 4}, {4, 4}}));
  EXPECT_EQ(counts({.max_new_tokens = 0}), Counts{});
  EXPECT_EQ(counts({.max_new_tokens = 2, .n = 3}), (Counts{{4, 0}, {4, 0}, {1, 1}, {3, 3}}))
      << "samples share the prompt";
}

TEST(Engine, BeamsEndAtTheirDeadline) {
  SuccessorModel model(50);
  double now_s = 0;
  Engine engine(model, {.clock = [&] { return now_s; }});
  engine.add_request({.prompt = {3},
                      .params = {.prompt_logprobs = true, .n = 2, .num_beams = 3},
                      .deadline_s = 5});
  engine.add_request(
      {.prompt = {3, 4}, .params = {.max_new_tokens = 5, .prompt_logprobs = true, .num_beams = 2}});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine.step().empty());
  now_s = 6;
  const std::vector<Update> updates = engine.step();
  EXPECT_EQ(words(updates), Words({"0: deadline", "0: deadline"}));
  EXPECT_EQ(updates[0].finished->ids, Ids({4, 5, 6}));
  EXPECT_FALSE(updates[0].is_last);
  EXPECT_TRUE(updates[1].is_last);
  const Generation other = run_all(engine).at(1).front();
  EXPECT_EQ(other.ids, Ids({5, 6, 7, 8, 9}));
  EXPECT_EQ(other.prompt_tokens.size(), 1u);
}

TEST(Engine, BeamsTellHowTheirPromptWasBegun) {
  SuccessorModel model(50);
  double now_s = 1;
  Engine engine(model, {.clock = [&] { return now_s; }});
  std::mt19937 random(8);
  const Ids prompt = random_ids(random, 200, 50);
  for (const std::int64_t num_cached : {0, 128}) {
    const SequenceId id = engine.add_request(
        {.prompt = prompt, .params = {.max_new_tokens = 2, .n = 2, .num_beams = 2}});
    const auto texts = run_all(engine).at(id);
    ASSERT_EQ(texts.size(), 2u);
    for (const Generation& text : texts) {
      EXPECT_EQ(text.num_cached, num_cached);
      EXPECT_EQ(text.start_s, now_s);
    }
    now_s += 3;
  }
}

TEST(Engine, CancelEndsAllTextsOfARequest) {
  SuccessorModel model(50, /*sharpness=*/0);
  Engine engine(model);
  const SequenceId samples = engine.add_request({.prompt = {3}, .params = {.n = 3}}),
                   beams = engine.add_request({.prompt = {4}, .params = {.num_beams = 3}});
  EXPECT_EQ(engine.step().size(), 3u);
  EXPECT_TRUE(engine.cancel(samples));
  EXPECT_TRUE(engine.step().empty());
  EXPECT_TRUE(engine.cancel(beams));
  EXPECT_FALSE(engine.cancel(samples));
  EXPECT_TRUE(engine.is_idle());
  EXPECT_EQ(engine.scheduler().pool().num_available(), engine.scheduler().pool().num_blocks());
}

/// Returns the greedy text of RunningSumModel.
Ids sums_after(Ids ids, std::int64_t count, std::int64_t vocab_size) {
  const std::size_t num_prompt_tokens = ids.size();
  std::int64_t sum = std::accumulate(ids.begin(), ids.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < count; ++i, sum += ids.back()) ids.push_back(sum % vocab_size);
  return {ids.begin() + static_cast<std::ptrdiff_t>(num_prompt_tokens), ids.end()};
}

TEST(Engine, StatesFollowFoundPrefixes) {
  RunningSumModel model(50);
  Engine engine(model);
  std::mt19937 random(3);
  const Ids first = random_ids(random, 300, 50);
  Ids same(first.begin(), first.begin() + 256), longer = first;
  longer[280] = 3;
  const SamplingParams greedy{.temperature = 0, .max_new_tokens = 2};
  for (const Ids& prompt : {first, same, longer}) {
    const SequenceId id = engine.add_request({.prompt = prompt, .params = greedy});
    EXPECT_EQ(run(engine).at(id).ids, sums_after(prompt, 2, 50));
  }
  // The last token of a prompt is computed in any case, and there is no snapshot right before it.
  EXPECT_EQ(model.calls,
            (std::vector<SuccessorModel::Call>{
                {0, 256}, {256, 44}, {300, 1}, {0, 256}, {256, 1}, {256, 44}, {300, 1}}));
}

TEST(Engine, StatesFollowSequencesThroughRandomSchedules) {
  RunningSumModel model(50);
  std::mt19937 random(5);
  const Ids prefix = random_ids(random, 400, 50);
  for (int round = 0; round < 20; ++round) {
    SchedulerOptions scheduler{.max_running = 1 + static_cast<std::int64_t>(random() % 4)};
    scheduler.max_step_tokens = scheduler.max_running + static_cast<std::int64_t>(random() % 300);
    scheduler.num_blocks = 5 + static_cast<std::int64_t>(random() % 6);
    scheduler.num_swap_blocks = static_cast<std::int64_t>(random() % 10);
    scheduler.prefix_cache = round % 4 != 0;
    scheduler.chunked_prefill = round % 3 != 0;
    if (!scheduler.chunked_prefill) scheduler.max_step_tokens += 450;
    Engine engine(model, {.scheduler = scheduler});
    std::map<SequenceId, Ids> expected;
    for (int i = 0; i < 12; ++i) {
      Ids prompt(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(random() % 400));
      const Ids own = random_ids(random, static_cast<std::int64_t>(1 + random() % 40), 50);
      prompt.insert(prompt.end(), own.begin(), own.end());
      const auto count = static_cast<std::int64_t>(1 + random() % 150);
      const SequenceId id =
          engine.add_request({.prompt = prompt,
                              .params = {.temperature = 0, .max_new_tokens = count},
                              .priority = static_cast<std::int64_t>(random() % 2)});
      expected.emplace(id, sums_after(prompt, count, 50));
      for (auto steps = random() % 20; steps > 0 && !engine.is_idle(); --steps) {
        for (const Update& update : engine.step())
          if (update.finished) {
            EXPECT_EQ(update.finished->ids, expected.at(update.request)) << "round " << round;
          }
      }
    }
    for (const auto& [id, result] : run(engine))
      EXPECT_EQ(result.ids, expected.at(id)) << "round " << round;
  }
}

TEST(Engine, SamplesAndBeamsForkTheirStates) {
  RunningSumModel model(50);
  Engine engine(model);
  const Ids prompt{3, 4};
  const SequenceId samples = engine.add_request(
      {.prompt = prompt, .params = {.temperature = 0, .max_new_tokens = 4, .n = 3}});
  const SequenceId beams =
      engine.add_request({.prompt = prompt, .params = {.max_new_tokens = 4, .num_beams = 2}});
  const auto results = run_all(engine);
  const Ids expected = sums_after(prompt, 4, 50);
  ASSERT_EQ(results.at(samples).size(), 3u);
  for (const Generation& text : results.at(samples)) EXPECT_EQ(text.ids, expected);
  EXPECT_EQ(results.at(beams).front().ids, expected);
}

/// Keeps states, but does not say so.
class SilentModel : public RunningSumModel {
 public:
  using RunningSumModel::RunningSumModel;
  bool keeps_states() const override { return false; }
};

TEST(Engine, RefusesStatesThatAModelDoesNotDeclare) {
  SilentModel model(50);
  Engine engine(model);
  engine.add_request({.prompt = {3}, .params = {.temperature = 0, .max_new_tokens = 1}});
  EXPECT_THROW(engine.step(), InternalError);
}

TEST(Engine, ATextWithoutTokensIsNoneOfTheBest) {
  const std::vector<Generation> texts = {
      {.ids = {1}, .score = -2},
      {.ids = {}, .finish_reason = FinishReason::deadline},
      {.ids = {}, .finish_reason = FinishReason::stop, .score = -1}};
  const std::vector<Generation> best = best_texts(texts, {.n = 2, .best_of = 3});
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].finish_reason, FinishReason::stop);
  EXPECT_EQ(best[1].ids, texts[0].ids);
}

TEST(Engine, TellsTheNewsOfEachRequest) {
  SuccessorModel model(50);
  Engine engine(model);
  engine.add_request({.prompt = {3}, .params = {.temperature = 0, .max_new_tokens = 2}});
  engine.add_request({.prompt = {10, 11}, .params = {.temperature = 0, .stop_token_ids = {13}}});
  engine.add_request({.prompt = {1}, .params = {.max_new_tokens = 0}});
  EXPECT_EQ(words(engine.step()), Words({"2: length", "0: 4", "1: 12"}));
  EXPECT_EQ(words(engine.step()), Words({"0: 5 length", "1: stop"}));
  EXPECT_TRUE(engine.is_idle());
  EXPECT_EQ(engine.scheduler().pool().num_available(), engine.scheduler().pool().num_blocks());
}

TEST(Engine, CancelledAndLateRequestsEnd) {
  SuccessorModel model(50);
  double now_s = 0;
  Engine engine(model, {.clock = [&] { return now_s; }});
  engine.add_request({.prompt = {3}, .params = {.temperature = 0}, .deadline_s = 5});
  const SequenceId cancelled = engine.add_request({.prompt = {4}});
  EXPECT_EQ(engine.step().size(), 2u);
  EXPECT_TRUE(engine.cancel(cancelled));
  EXPECT_FALSE(engine.cancel(cancelled));
  now_s = 6;
  EXPECT_EQ(words(engine.step()), Words({"0: deadline"}));
  EXPECT_TRUE(engine.is_idle());
}

// The time to cancel one does not grow with the number of all.
TEST(Engine, CancelsManyRequestsSoon) {
  SuccessorModel model(50);
  Engine engine(model);
  std::vector<SequenceId> requests;
  for (int i = 0; i < 40'000; ++i)
    requests.push_back(engine.add_request({.prompt = {3}, .params = {.n = 2}}));
  EXPECT_FALSE(engine.step().empty());  // some texts run, and have forked
  const double begin_s = monotonic_seconds();
  for (const SequenceId request : requests) EXPECT_TRUE(engine.cancel(request));
  EXPECT_LT(monotonic_seconds() - begin_s, 5);
  EXPECT_TRUE(engine.is_idle());
  EXPECT_EQ(engine.scheduler().pool().num_available(), engine.scheduler().pool().num_blocks());
}

// A step without a pass, because a request ends before it, is as any other.
TEST(Engine, ServesRequestsAfterAStepWithoutAPass) {
  SuccessorModel model(50);
  double now_s = 0;
  Engine engine(model, {.clock = [&] { return now_s; }});
  engine.add_request({.prompt = {1}, .params = {.max_new_tokens = 0}});
  EXPECT_EQ(words(engine.step()), Words({"0: length"}));
  engine.add_request({.prompt = {3}, .params = {.temperature = 0}, .deadline_s = 5});
  now_s = 6;
  EXPECT_EQ(words(engine.step()), Words({"1: deadline"}));
  engine.add_request({.prompt = {3}, .params = {.temperature = 0, .max_new_tokens = 1}});
  EXPECT_EQ(words(engine.step()), Words({"2: 4 length"}));
}

/// Fails in one pass.
class FailingModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  int passes_until_failure = 2;
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass,
                            const Activations& activations) override {
    if (--passes_until_failure == 0) throw std::runtime_error("a pass failed");
    return SuccessorModel::forward_chunk(chunk, pass, activations);
  }
};

TEST(Engine, AFailedPassLeavesItsRequestsAsTheyWere) {
  FailingModel model(50);
  Engine engine(model);
  engine.add_request({.prompt = {3}, .params = {.temperature = 0, .max_new_tokens = 3}});
  EXPECT_EQ(words(engine.step()), Words({"0: 4"}));
  EXPECT_THROW(engine.step(), std::runtime_error);
  EXPECT_EQ(run(engine).at(0).ids, Ids({4, 5, 6}));
}

}  // namespace
}  // namespace megatron
