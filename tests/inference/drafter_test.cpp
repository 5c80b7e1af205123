// Engines with drafts: texts are those without them, or have the same distribution.
#include "megatron/inference/speculation/drafter.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "inference/byte_pieces.h"
#include "inference/chi_square.h"
#include "inference/small_model.h"
#include "inference/successor_model.h"
#include "megatron/inference/engine.h"
#include "megatron/ops/matmul.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

TEST(NgramLookup, ProposesWhatFollowedTheLongestMatch) {
  const auto look_up = [](const Ids& tokens, std::int64_t count, std::int64_t shortest = 1,
                          std::int64_t longest = 4) {
    return look_up_ngram(tokens, count, shortest, longest);
  };
  EXPECT_EQ(look_up({1, 2, 3, 9, 2, 3}, 1), Ids({9}));
  EXPECT_EQ(look_up({1, 2, 3, 9, 2, 3}, 0), Ids());
  EXPECT_EQ(look_up({1, 2, 3, 9, 8, 2, 3}, 2), Ids({9, 8}));
  EXPECT_EQ(look_up({1, 2, 7, 5, 2, 8, 1, 2}, 1), Ids({7})) << "the longest match";
  EXPECT_EQ(look_up({2, 7, 5, 2, 8, 4, 2}, 1), Ids({8})) << "the latest of two";
  EXPECT_EQ(look_up({1, 2, 7, 5, 2, 8, 1, 2}, 1, 1, 1), Ids({8})) << "one token is looked up";
  EXPECT_EQ(look_up({1, 2, 3, 4, 5}, 3), Ids()) << "nothing was said twice";
  EXPECT_EQ(look_up({1, 7, 2, 7}, 3, 2), Ids()) << "one token is too short a match";
  EXPECT_EQ(look_up({5, 1, 2, 1, 2}, 5), Ids({1, 2, 1, 2, 1})) << "a match goes on in circles";
  EXPECT_EQ(look_up({4}, 3), Ids());
  EXPECT_EQ(look_up({4, 4}, 3), Ids({4, 4, 4}));
}

struct Result {
  std::map<SequenceId, Generation> ended;
  std::map<SequenceId, Ids> told;  ///< the tokens of updates
  std::int64_t num_steps = 0;
};

/// Runs an engine until it is idle.
Result run(Engine& engine) {
  Result result;
  while (!engine.is_idle()) {
    ++result.num_steps;
    for (const Update& update : engine.step()) {
      EXPECT_FALSE(result.ended.contains(update.request)) << "news after the end";
      if (update.token) result.told[update.request].push_back(*update.token);
      if (update.finished) result.ended.emplace(update.request, *update.finished);
    }
  }
  return result;
}

/// Expects that two texts have the same tokens, bits of log-probabilities and end.
void expect_equal(const Generation& a, const Generation& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
  EXPECT_EQ(a.num_cut_bytes, b.num_cut_bytes);
  EXPECT_EQ(a.score, b.score);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].id, b.tokens[i].id);
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob);
    ASSERT_EQ(a.tokens[i].best.size(), b.tokens[i].best.size());
    for (std::size_t k = 0; k < a.tokens[i].best.size(); ++k)
      EXPECT_EQ(a.tokens[i].best[k].logprob, b.tokens[i].best[k].logprob);
  }
}

/// Requests that share a prefix or not, with all that depends on the tokens before.
std::vector<TextRequest> random_requests(std::mt19937& random, const Ids& prefix) {
  std::vector<TextRequest> requests;
  for (std::uint64_t index = 0; index < 8; ++index) {
    const bool shares = random() % 2 == 0;
    Ids prompt(prefix.begin(),
               prefix.begin() + static_cast<std::ptrdiff_t>(shares ? random() % 300 : 0));
    const Ids own = random_ids(random, static_cast<std::int64_t>(1 + random() % 130));
    prompt.insert(prompt.end(), own.begin(), own.end());
    SamplingParams params{.temperature = index % 2 == 0 ? 0.0 : 0.7,
                          .top_k = index % 3 == 0 ? 4 : 0,
                          .seed = 5,
                          .max_new_tokens = static_cast<std::int64_t>(random() % 60)};
    if (index % 3 == 1) params.frequency_penalty = 0.2, params.repetition_penalty = 1.1;
    if (index % 4 != 3) params.stop_token_ids = {7, 11};
    if (index % 4 == 2) params.min_new_tokens = 12;
    if (index % 2 == 1) params.logprobs = 2;
    requests.push_back({.prompt = prompt,
                        .params = params,
                        .site = {.prompt = index},
                        .priority = static_cast<std::int64_t>(random() % 3)});
  }
  return requests;
}

/// Runs random requests with drafts, in engines with little room, and each one alone without.
void expect_texts_without_drafts(const ModelRunner& model, SpeculationOptions speculation) {
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(11);
  const Ids prefix = random_ids(random, 300);
  SpeculationStats stats;
  speculation.stats = &stats;
  for (int round = 0; round < 5; ++round) {
    const std::vector<TextRequest> requests = random_requests(random, prefix);
    const std::int64_t most =
        speculation.config.method() == SpeculativeMethod::mtp ? model.config().mtp_num_layers : 6;
    speculation.config.num_speculative_tokens = 1 + static_cast<std::int64_t>(random()) % most;
    SchedulerOptions scheduler{.max_running = 1 + static_cast<std::int64_t>(random() % 6)};
    scheduler.max_step_tokens = scheduler.max_running + static_cast<std::int64_t>(random() % 70);
    scheduler.num_blocks = 5 + static_cast<std::int64_t>(random() % 5);
    scheduler.prefix_cache = round % 2 == 0;
    scheduler.num_swap_blocks = round % 3 == 1 ? 8 : 0;
    Engine engine(model, {.scheduler = scheduler, .speculation = speculation});
    std::map<SequenceId, std::size_t> places;
    for (const TextRequest& request : requests)
      places.emplace(engine.add_request(request), places.size());
    const Result result = run(engine);
    ASSERT_EQ(result.ended.size(), requests.size());
    EXPECT_EQ(engine.scheduler().pool().num_available(), scheduler.num_blocks);
    for (const auto& [id, generation] : result.ended) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(id));
      Engine alone(model);
      const SequenceId own = alone.add_request(requests[places.at(id)]);
      expect_equal(generation, run(alone).ended.at(own));
      const auto told = result.told.find(id);
      EXPECT_EQ(told == result.told.end() ? Ids() : told->second, generation.ids);
    }
  }
  EXPECT_GT(stats.num_accepted, 0);
  EXPECT_LE(stats.num_accepted, stats.num_drafts);
}

TEST(Drafter, NgramsChangeNoText) {
  const SmallModel target;
  expect_texts_without_drafts(
      *target.model,
      {.config = {.speculative_method = SpeculativeMethod::ngram, .ngram_prompt_lookup_min = 1}});
}

TEST(Drafter, AnotherModelChangesNoText) {
  const SmallModel target, draft(8);
  const ModelRunner runner(*draft.model);
  expect_texts_without_drafts(*target.model,
                              {.config = {.speculative_model = "draft"}, .draft_model = &runner});
}

TEST(Drafter, TheSameModelChangesNoText) {
  const SmallModel target, draft;
  const ModelRunner runner(*draft.model);
  expect_texts_without_drafts(*target.model,
                              {.config = {.speculative_model = "draft"}, .draft_model = &runner});
}

TEST(Drafter, HeadsOfMultiTokenPredictionChangeNoText) {
  const SmallModel target(7, /*mtp_depths=*/2);
  expect_texts_without_drafts(*target.model, {});
}

/// Returns what the depths of a model propose behind tokens, from one pass for each depth over all
/// tokens. The most likely tokens are taken.
Ids proposals_of_depths(Model& model, Ids tokens, std::int64_t count) {
  const std::size_t num_rows = tokens.size() - 1;
  const auto microbatch = [&](std::int64_t depth) {
    return microbatch_of(
        {std::span<const std::int64_t>(tokens).subspan(static_cast<std::size_t>(depth), num_rows)});
  };
  at::Tensor rows;
  const Microbatch first = microbatch(0);
  model.infer({.microbatch = first, .wants = Wants::last_logits, .rows = &rows});
  Ids proposals;
  for (std::int64_t depth = 1; depth <= count; ++depth) {
    Microbatch later = microbatch(depth);
    later.tensors["previous_rows"] = rows;
    const at::Tensor logits = model.infer(
        {.microbatch = later, .wants = Wants::last_logits, .depth = depth, .rows = &rows});
    proposals.push_back(logits.argmax(-1).item<std::int64_t>());
    tokens.push_back(proposals.back());
  }
  return proposals;
}

// Depths with caches propose what they propose from the whole text.
TEST(Drafter, CachesOfDepthsAreThoseOfTheWholeText) {
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(4);
  Ids tokens = random_ids(random, 110);
  for (std::int64_t& id : tokens) id %= 7;
  std::int64_t num_accepted = 0;
  for (const std::int64_t run : {0, 1, 2, 3, 4, 5}) {
    const std::int64_t count = 1 + run % 2;
    const SmallModel target(static_cast<std::uint64_t>(run), /*mtp_depths=*/2, /*vocab_size=*/7);
    SpeculationStats stats;
    Engine engine(*target.model,
                  {.scheduler = {.max_running = 4, .max_step_tokens = 50},
                   .speculation = {.config = {.num_speculative_tokens = count}, .stats = &stats}});
    engine.add_request(
        {.prompt = tokens,
         .params = {.temperature = 0, .repetition_penalty = 1, .max_new_tokens = 60}});
    Ids all = tokens;
    std::int64_t num_accepted_here = 0;
    while (!engine.is_idle()) {
      const std::int64_t before = stats.num_drafts;
      Ids told;
      for (const Update& update : engine.step())
        if (update.token) told.push_back(*update.token);
      const std::int64_t num_drafts = stats.num_drafts - before;
      const Ids proposals =
          num_drafts > 0 ? proposals_of_depths(*target.model, all, num_drafts) : Ids();
      std::size_t accepted = 0;
      while (accepted < std::min(told.size(), proposals.size()) &&
             told[accepted] == proposals[accepted])
        ++accepted;
      EXPECT_EQ(told.size(), told.empty() ? 0 : accepted + 1) << "after " << all.size();
      num_accepted_here += static_cast<std::int64_t>(accepted);
      all.insert(all.end(), told.begin(), told.end());
    }
    EXPECT_EQ(stats.num_accepted, num_accepted_here);
    num_accepted += num_accepted_here;
  }
  EXPECT_GT(num_accepted, 0);
}

// Samples fork behind a prompt, from when on each has drafts of its own.
TEST(Drafter, SamplesOfAPromptAreThoseWithoutDrafts) {
  const SmallModel target, draft;
  const ModelRunner runner(*draft.model);
  std::mt19937 random(6);
  for (const std::int64_t num_prompt_tokens : {1, 140}) {
    const TextRequest request{
        .prompt = random_ids(random, num_prompt_tokens),
        .params = {.max_new_tokens = num_prompt_tokens == 1 ? 2 : 20, .n = 3}};
    const auto texts_with = [&](std::int64_t num_drafts) {
      Engine engine(*target.model, {.speculation = {.config = {.num_speculative_tokens = num_drafts,
                                                               .speculative_model = "draft"},
                                                    .draft_model = &runner}});
      engine.add_request(request);
      std::vector<Ids> texts(3);
      while (!engine.is_idle())
        for (const Update& update : engine.step())
          if (update.finished) texts[static_cast<std::size_t>(update.text)] = update.finished->ids;
      return texts;
    };
    EXPECT_EQ(texts_with(3), texts_with(0));
  }
}

// The caches of a draft model are right at every position, also in blocks that others find, that
// drafts filled, and after preemption: with the weights of the target all its drafts are accepted.
TEST(Drafter, ADraftModelSeesWhatTheTargetSees) {
  const SmallModel target, draft;
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  const ModelRunner runner(*draft.model);
  std::mt19937 random(2);
  const Ids prefix = random_ids(random, 200);
  for (const std::int64_t num_swap_blocks : {0, 6}) {
    const bool samples = num_swap_blocks == 0;
    SpeculationStats stats;
    Engine engine(*target.model,
                  {.scheduler = {.max_running = 4,
                                 .max_step_tokens = 60,
                                 .num_blocks = 8,
                                 .num_swap_blocks = num_swap_blocks},
                   .speculation = {.config = {.num_speculative_tokens = 3,
                                              .speculative_model = "draft",
                                              .speculative_rejection_sampling = samples},
                                   .draft_model = &runner,
                                   .stats = &stats}});
    for (std::uint64_t index = 0; index < 12; ++index) {
      Ids prompt(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(random() % 200));
      const Ids own = random_ids(random, static_cast<std::int64_t>(1 + random() % 60));
      prompt.insert(prompt.end(), own.begin(), own.end());
      engine.add_request(
          {.prompt = prompt, .params = {.max_new_tokens = 150}, .site = {.prompt = index % 6}});
    }
    run(engine);
    EXPECT_GT(stats.num_drafts, 300);
    EXPECT_EQ(stats.num_accepted, stats.num_drafts);
  }
}

/// Runs a request of a long prompt that gets no drafts, beside one that does, and then a request
/// with the first `num_shared` tokens of it, which are found in blocks that no drafter has
/// computed.
void expect_no_drafts_behind_foreign_blocks(const ModelRunner& model,
                                            SpeculationOptions speculation,
                                            std::int64_t num_shared) {
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  std::mt19937 random(3);
  const Ids drafting = random_ids(random, 20), foreign = random_ids(random, 1290);
  const auto request = [](Ids prompt, std::int64_t max_new_tokens) {
    return TextRequest{.prompt = std::move(prompt),
                       .params = {.temperature = 0, .max_new_tokens = max_new_tokens}};
  };
  SpeculationStats stats;
  speculation.stats = &stats;
  Engine engine(model, {.speculation = speculation});
  const auto expect_text_of_one_alone = [&](const TextRequest& request) {
    Engine alone(model);
    const SequenceId id = engine.add_request(request), own = alone.add_request(request);
    expect_equal(run(engine).ended.at(id), run(alone).ended.at(own));
  };
  engine.add_request(request(drafting, 90));
  while (stats.num_drafts == 0) engine.step();
  engine.add_request(request(foreign, 1));
  run(engine);
  const std::int64_t before = stats.num_drafts;
  expect_text_of_one_alone(request({foreign.begin(), foreign.begin() + num_shared}, 20));
  EXPECT_EQ(stats.num_drafts, before);
  expect_text_of_one_alone(request(drafting, 20));
  EXPECT_GT(stats.num_drafts, before);
}

TEST(Drafter, HeadsReadNoBlocksThatTheyHaveNotComputed) {
  const SmallModel target(7, /*mtp_depths=*/2);
  expect_no_drafts_behind_foreign_blocks(*target.model, {.config = {.num_speculative_tokens = 2}},
                                         1290);
}

TEST(Drafter, AModelReadsNoBlocksOfTextsThatWereTooLongForIt) {
  const SmallModel target, draft(7, 0, SmallModel::kVocabSize, /*learned_positions=*/700);
  const ModelRunner runner(*draft.model);
  expect_no_drafts_behind_foreign_blocks(
      *target.model,
      {.config = {.num_speculative_tokens = 2, .speculative_model = "draft"},
       .draft_model = &runner},
      600);
}

TEST(Drafter, ATextComesInFewerSteps) {
  SuccessorModel target(10), draft(10);
  const ModelRunner runner(draft);
  const TextRequest request{.prompt = {1}, .params = {.temperature = 0, .max_new_tokens = 11}};
  SpeculationStats stats;
  Engine engine(target, {.speculation = {
                             .config = {.num_speculative_tokens = 4, .speculative_model = "draft"},
                             .draft_model = &runner,
                             .stats = &stats}});
  engine.add_request(request);
  const Result result = run(engine);
  EXPECT_EQ(result.ended.at(0).ids, Ids({2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}));
  EXPECT_EQ(result.num_steps, 3);  // 1 token, then 5 twice
  EXPECT_EQ(stats.num_drafts, 8);
  EXPECT_EQ(stats.num_accepted, 8);
  EXPECT_EQ(stats.with_drafts.num_tokens, 10);
  EXPECT_THAT(stats.summary(), HasSubstr("8 of 8 proposed tokens were accepted (100.0 %), 5.00"));
}

TEST(Drafter, StopStringsAndTokensMayBeInsideOfDrafts) {
  SuccessorModel model(6);
  const BytePieces tokenizer({"zero ", "one ", "two ", "three ", "four ", "five "});
  const auto generate = [&](SamplingParams params, std::int64_t num_drafts) {
    params.temperature = 0;
    Engine engine(model,
                  {.tokenizer = &tokenizer,
                   .speculation = {.config = {.num_speculative_tokens = num_drafts,
                                              .speculative_method = SpeculativeMethod::ngram}}});
    engine.add_request({.prompt = {0, 1, 2, 3, 4, 5, 0, 1}, .params = params});
    return run(engine).ended.at(0);
  };
  for (const SamplingParams& params :
       {SamplingParams{.stop = {"hree fo"}}, SamplingParams{.min_new_tokens = 3, .stop = {"four"}},
        SamplingParams{.stop_token_ids = {5}},
        SamplingParams{.min_new_tokens = 4, .stop_token_ids = {2}},
        SamplingParams{.max_new_tokens = 7}}) {
    const Generation expected = generate(params, 0);
    for (const std::int64_t num_drafts : {1, 2, 5, 9})
      expect_equal(generate(params, num_drafts), expected);
  }
}

/// Counts the pairs of steps from a token to the next in texts with drafts that `draft` draws.
void expect_the_targets_distribution(Model& draft) {
  constexpr std::int64_t kTokens = 4;
  SuccessorModel target(kTokens, /*sharpness=*/1);
  const ModelRunner runner(draft);
  SpeculationStats stats;
  Engine engine(target, {.speculation = {.config = {.num_speculative_tokens = 2,
                                                    .speculative_model = "draft",
                                                    .speculative_rejection_sampling = true},
                                         .draft_model = &runner,
                                         .stats = &stats}});
  for (std::uint64_t index = 0; index < 20000; ++index)
    engine.add_request({.prompt = {0}, .params = {.max_new_tokens = 4}, .site = {.prompt = index}});
  std::vector<std::int64_t> counts(kTokens * kTokens);
  std::vector<double> expected(kTokens * kTokens);
  const Result result = run(engine);
  for (const auto& [id, text] : result.ended) {
    const auto step = [&](std::size_t i) {
      return (text.ids[i] - text.ids[i - 1] + kTokens) % kTokens;
    };
    ++counts[static_cast<std::size_t>(step(1) * kTokens + step(2))];
  }
  for (std::int64_t a = 0; a < kTokens; ++a)
    for (std::int64_t b = 0; b < kTokens; ++b)
      expected[static_cast<std::size_t>(a * kTokens + b)] =
          std::exp((a == 1) + (b == 1)) / std::pow(std::exp(1) + 3, 2);
  expect_distribution(counts, expected);
  EXPECT_GT(stats.num_accepted, 0);
  EXPECT_LT(stats.num_accepted, stats.num_drafts);
}

TEST(Drafter, DrawnDraftsGiveTheTargetsDistribution) {
  for (const float sharpness : {0.0f, 2.5f}) {
    SuccessorModel draft(4, sharpness);
    expect_the_targets_distribution(draft);
  }
}

/// Fails in one pass.
class FailingModel : public SuccessorModel {
 public:
  using SuccessorModel::SuccessorModel;
  int passes_until_failure = 3;
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass,
                            const Activations& activations) override {
    if (--passes_until_failure == 0) throw std::runtime_error("a pass failed");
    return SuccessorModel::forward_chunk(chunk, pass, activations);
  }
};

TEST(Drafter, AFailedDraftLeavesRequestsAsTheyWere) {
  SuccessorModel target(50);
  FailingModel draft(50);
  const ModelRunner runner(draft);
  Engine engine(target, {.speculation = {
                             .config = {.num_speculative_tokens = 2, .speculative_model = "draft"},
                             .draft_model = &runner}});
  engine.add_request({.prompt = {3}, .params = {.temperature = 0, .max_new_tokens = 6}});
  EXPECT_EQ(engine.step().size(), 3u) << "a token and two drafts";
  EXPECT_THROW(engine.step(), std::runtime_error);
  EXPECT_EQ(run(engine).ended.at(0).ids, Ids({4, 5, 6, 7, 8, 9}));
}

TEST(Drafter, RefusesWhatDoesNotFit) {
  SuccessorModel target(50), draft(40);
  const ModelRunner runner(draft), own(target);
  EXPECT_THAT(
      message_of([&] {
        make_drafter({.config = {.num_speculative_tokens = 2, .speculative_model = "small"},
                      .draft_model = &runner},
                     own);
      }),
      testing::AllOf(HasSubstr("--speculative-model small"), HasSubstr("40"), HasSubstr("50")));
  EXPECT_THAT(message_of([&] { make_drafter({.config = {.num_speculative_tokens = 1}}, own); }),
              HasSubstr("0 heads of multi-token prediction"));
  SmallModel deep(/*seed=*/7, /*mtp_depths=*/1);
  const PipelineLayout layout{
      .num_ranks = 2,
      .stages = {{.num_layers = 2, .has_embedding = true},
                 {.first_layer = 2, .num_layers = 1, .num_mtp = 1, .has_output = true}}};
  const ModelRunner divided(*deep.model, deep.weights, layout, {.name = "pp", .size = 2});
  EXPECT_THAT(
      message_of([&] { make_drafter({.config = {.num_speculative_tokens = 1}}, divided); }),
      testing::AllOf(HasSubstr("--num-speculative-tokens 1: heads of multi-token prediction"),
                     HasSubstr("set --pipeline-model-parallel-size 1, or give another")));
  RunningSumModel states(50);
  EXPECT_THAT(message_of([&] {
                make_drafter({.config = {.num_speculative_tokens = 1}}, ModelRunner(states));
              }),
              testing::AllOf(HasSubstr("--num-speculative-tokens 1"), HasSubstr("states")));
  const auto message = [](const SpeculativeConfig& config) {
    return message_of([&] { check_speculative_options(config); });
  };
  EXPECT_THAT(message({.speculative_model = "small"}), HasSubstr("--num-speculative-tokens"));
  EXPECT_THAT(
      message({.num_speculative_tokens = 2, .speculative_method = SpeculativeMethod::draft_model}),
      HasSubstr("give --speculative-model DIR"));
  EXPECT_THAT(message({.num_speculative_tokens = 2,
                       .speculative_method = SpeculativeMethod::ngram,
                       .ngram_prompt_lookup_max = 1}),
              HasSubstr("--ngram-prompt-lookup-min"));
}

TEST(Drafter, SaysWhetherItPays) {
  SpeculationStats stats;
  const ScheduledRun drafted{.count = 3, .num_drafts = 2, .samples = true},
      plain{.count = 1, .samples = true}, prompt{.count = 9, .samples = true};
  const auto add = [&](const ScheduledRun& run, std::int64_t num_drawn) {
    stats.add({&run, 1}, {&num_drawn, 1}, /*draft_s=*/1, /*pass_s=*/2);
  };
  add(prompt, 1);
  add(drafted, 3);
  add(drafted, 1);
  EXPECT_EQ(stats.num_drafts, 4);
  EXPECT_EQ(stats.num_accepted, 2);
  EXPECT_EQ(stats.speedup(), 0);
  EXPECT_EQ(stats.summary(),
            "speculative decoding: 2 of 4 proposed tokens were accepted (50.0 %), 2.00 tokens of a "
            "text in a step");
  add(plain, 1);
  EXPECT_DOUBLE_EQ(stats.speedup(), 4.0 / 6 / (1.0 / 2));
  add(drafted, 1);
  add(drafted, 1);
  EXPECT_DOUBLE_EQ(stats.speedup(), 6.0 / 12 / (1.0 / 2));
  add(drafted, 1);
  EXPECT_THAT(stats.summary(), HasSubstr("0.93 times as fast as without: it does not pay here"));
}

}  // namespace
}  // namespace megatron
