#include "megatron/inference/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "inference/small_model.h"
#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/config/resolve.h"
#include "megatron/ops/matmul.h"

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
