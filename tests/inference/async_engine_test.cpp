#include "megatron/inference/async_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "inference/successor_model.h"
#include "megatron/base/error.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/resolve.h"
#include "megatron/inference/messages.h"
#include "megatron/inference/replicas.h"
#include "megatron/inference/update_stream.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

/// Returns all tokens of a stream. Throws like it.
Ids tokens_of(UpdateStream& stream) {
  Ids ids;
  while (const std::optional<Update> update = stream.next())
    if (update->token) ids.push_back(*update->token);
  return ids;
}

/// Returns the message of the exception that a call throws.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TextRequest greedy(Ids prompt, std::int64_t max_new_tokens) {
  return {.prompt = std::move(prompt),
          .params = {.temperature = 0, .max_new_tokens = max_new_tokens}};
}

/// Returns `count` numbers that follow `first` in a vocabulary of 50.
Ids successors(std::int64_t first, std::int64_t count) {
  Ids ids;
  for (std::int64_t i = 1; i <= count; ++i) ids.push_back((first + i) % 50);
  return ids;
}

/// Serves a long request until it is given up.
constexpr std::int64_t kForever = 100'000;

TEST(AsyncEngine, ThreadsAddAndCancelWhileItSteps) {
  SuccessorModel model(50);
  AsyncEngine engine(model, {.scheduler = {.max_running = 8, .max_step_tokens = 16}});
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&engine, number] {
      std::mt19937 random(number);
      for (int i = 0; i < 25; ++i) {
        const auto first = static_cast<std::int64_t>(random() % 50),
                   count = static_cast<std::int64_t>(1 + random() % 20);
        UpdateStream stream = engine.stream(greedy({first}, count));
        const unsigned choice = random() % 4;
        if (choice == 0) continue;  // its destructor cancels
        if (choice == 1) {
          const std::optional<Update> update = stream.next();
          ASSERT_TRUE(update && update->token);
          EXPECT_EQ(*update->token, (first + 1) % 50);
          stream.cancel();
          EXPECT_FALSE(stream.next());
          continue;
        }
        EXPECT_EQ(tokens_of(stream), successors(first, count));
        EXPECT_FALSE(stream.next()) << "news after the end";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine.drain();
  UpdateStream last = engine.stream(greedy({3}, 2));
  EXPECT_EQ(tokens_of(last), Ids({4, 5}));
}

TEST(AsyncEngine, CallsBackFromOneThread) {
  SuccessorModel model(50);
  AsyncEngine engine(model);
  std::set<std::thread::id> callers;
  std::map<RequestId, Ids> texts;
  std::function<void(const News&)> on_news = [&](const News& news) {
    callers.insert(std::this_thread::get_id());
    Ids& text = texts[news.update.request];
    if (news.update.token) text.push_back(*news.update.token);
    // A text of two tokens asks for another one.
    if (news.is_last() && text.size() == 2) engine.add_request(greedy({text.back()}, 3), on_news);
    if (text.size() == 5) engine.cancel(news.update.request);
  };
  engine.add_request(greedy({7}, 2), on_news);
  engine.add_request(greedy({20}, kForever), on_news);
  engine.drain();
  EXPECT_EQ(callers.size(), 1u);
  EXPECT_FALSE(callers.contains(std::this_thread::get_id()));
  EXPECT_THAT(texts, testing::UnorderedElementsAre(testing::Pair(0, Ids({8, 9})),
                                                   testing::Pair(1, Ids({21, 22, 23, 24, 25})),
                                                   testing::Pair(2, Ids({10, 11, 12}))));
}

TEST(AsyncEngine, TextsOfARequestShareAStream) {
  SuccessorModel model(50);
  AsyncEngine engine(model);
  UpdateStream stream =
      engine.stream({.prompt = {3}, .params = {.top_k = 1, .max_new_tokens = 3, .n = 2}});
  std::map<std::int64_t, Ids> texts;
  int num_ends = 0;
  while (const std::optional<Update> update = stream.next()) {
    if (update->token) texts[update->text].push_back(*update->token);
    if (update->finished) ++num_ends;
  }
  EXPECT_EQ(num_ends, 2);
  EXPECT_THAT(texts, testing::ElementsAre(testing::Pair(0, Ids({4, 5, 6})),
                                          testing::Pair(1, Ids({4, 5, 6}))));
  engine.drain();
}

TEST(AsyncEngine, DestructionEndsItsRequests) {
  SuccessorModel model(50);
  auto engine = std::make_unique<AsyncEngine>(model);
  UpdateStream read = engine->stream(greedy({3}, kForever)),
               unread = engine->stream(greedy({4}, kForever));
  EXPECT_EQ(read.next()->token, 4);
  std::string error;
  std::thread waits([&] { error = error_of([&] { tokens_of(read); }); });
  engine.reset();
  waits.join();
  EXPECT_THAT(error, HasSubstr("the engine was stopped"));
  EXPECT_THAT(error_of([&] { tokens_of(unread); }), HasSubstr("the engine was stopped"));
  unread.cancel();
}

TEST(AsyncEngine, StopsOnce) {
  SuccessorModel model(50);
  AsyncEngine engine(model);
  UpdateStream stream = engine.stream(greedy({3}, kForever));
  EXPECT_EQ(stream.next()->token, 4);
  engine.stop();
  EXPECT_THAT(error_of([&] { tokens_of(stream); }), HasSubstr("the engine was stopped"));
  EXPECT_THAT(error_of([&] { engine.stream(greedy({3}, 1)); }),
              HasSubstr("the engine was stopped"));
  engine.stop();
}

/// Fails in a pass.
class FailingModel : public SuccessorModel {
 public:
  explicit FailingModel(int passes) : SuccessorModel(50), passes_until_failure(passes) {}
  int passes_until_failure;
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass,
                            const Activations& activations) override {
    if (--passes_until_failure == 0) throw std::runtime_error("a pass failed");
    return SuccessorModel::forward_chunk(chunk, pass, activations);
  }
};

TEST(AsyncEngine, AFailedStepReachesEveryRequest) {
  FailingModel model(500);
  AsyncEngine engine(model);
  std::vector<UpdateStream> streams;
  for (std::int64_t i = 0; i < 3; ++i) streams.push_back(engine.stream(greedy({i}, kForever)));
  for (UpdateStream& stream : streams)
    EXPECT_EQ(error_of([&] { tokens_of(stream); }), "a pass failed");
  EXPECT_EQ(error_of([&] { engine.stream(greedy({1}, 1)); }), "a pass failed");
  EXPECT_EQ(error_of([&] { engine.drain(); }), "a pass failed");
  EXPECT_EQ(error_of([&] { engine.wait(); }), "a pass failed");
  EXPECT_EQ(error_of([&] { engine.update_weights([] {}); }), "a pass failed");
}

TEST(AsyncEngine, RequestsThatCannotBeServedGetAnError) {
  SuccessorModel model(50);
  double now_s = 0;
  AsyncEngine engine(model, {}, {.clock = [&] { return now_s; }});
  UpdateStream foreign = engine.stream(greedy({50}, 1)),
               long_one = engine.stream(greedy({1}, 1 << 20)), good = engine.stream(greedy({1}, 2));
  EXPECT_THAT(message_of([&] { tokens_of(foreign); }), HasSubstr("50"));
  EXPECT_THAT(message_of([&] { tokens_of(long_one); }), HasSubstr("the KV cache has room"));
  EXPECT_EQ(tokens_of(good), Ids({2, 3}));
  TextRequest stops = greedy({1}, 1), scores = greedy({1, 2}, 1), endless = greedy({1}, 3);
  stops.params.stop = {"x"};
  scores.first_scored = 0;
  endless.params.min_new_tokens = 2;
  for (std::int64_t id = 0; id < 50; ++id) endless.params.stop_token_ids.push_back(id);
  TextRequest samples = endless;
  samples.params.temperature = 1;
  samples.params.n = 3;
  UpdateStream long_lived = engine.stream(greedy({1}, kForever));
  EXPECT_EQ(long_lived.next()->token, 2);
  for (const auto& [request, message] : std::vector<std::pair<TextRequest, std::string>>{
           {stops, "the engine has no tokenizer"},
           {scores, "nothing is before it"},
           {endless, "every token that the model allows ends the text"},
           {samples, "every token that the model allows ends the text"}}) {
    UpdateStream stream = engine.stream(request);
    EXPECT_THAT(message_of([&] { tokens_of(stream); }), HasSubstr(message));
    EXPECT_EQ(long_lived.next()->request, 3) << "others go on";
  }
  TextRequest late = greedy({1}, kForever);
  late.deadline_s = 0;
  UpdateStream stream = engine.stream(late);
  const std::optional<Update> update = stream.next();
  ASSERT_TRUE(update && update->finished);
  EXPECT_EQ(update->finished->finish_reason, FinishReason::deadline);
}

/// A rank's part of a small GPT.
class ModelPart {
 public:
  ModelPart(const Rank& rank, const ParallelConfig& parallel, std::uint64_t seed)
      : layout_(pipeline_layout(parallel, config().num_layers)),
        model_(make_gpt_model(config(), rank, MakeModelOptions{.layout = &layout_})),
        weights(declared_parameters(*model_), {.with_gradients = false, .model = rank.model}),
        runner(*model_, weights, layout_, rank.pp) {
    weights.initialize(seed);
  }

  static TransformerConfig config() {
    TransformerConfig config;
    config.num_layers = 4;
    config.hidden_size = 16;
    config.num_attention_heads = 4;
    config.ffn_hidden_size = 24;
    config.vocab_size = 61;
    config.max_position_embeddings = 1024;
    config.init_method_std = 0.3;
    config.position_embedding_type = PositionEmbedding::rope;
    config.untie_embeddings_and_output_weights = true;
    resolve(config);
    return config;
  }

 private:
  const PipelineLayout layout_;
  const std::unique_ptr<Model> model_;

 public:
  ParamStore weights;
  const ModelRunner runner;
};

/// Requests with prompts of several lengths, of which some have a prefix in common.
std::vector<TextRequest> requests() {
  std::mt19937 random(5);
  Ids prompt;
  std::vector<TextRequest> requests;
  for (std::uint64_t index = 0; index < 6; ++index) {
    if (index == 3) prompt.clear();
    for (int i = 0; i < 70; ++i) prompt.push_back(static_cast<std::int64_t>(random() % 61));
    requests.push_back({.prompt = prompt,
                        .params = {.temperature = index % 2 == 0 ? 0.0 : 1.0,
                                   .top_k = index % 2 == 0 ? 0 : 20,
                                   .max_new_tokens = 8 + static_cast<std::int64_t>(index)},
                        .site = {.prompt = index}});
  }
  return requests;
}

/// Returns the texts that one rank generates.
std::vector<Ids> texts_of_one_rank(const std::vector<TextRequest>& requests, std::uint64_t seed) {
  const ModelPart part(Rank{}, {}, seed);
  Engine engine(part.runner);
  std::vector<Ids> texts(requests.size());
  for (const TextRequest& request : requests) engine.add_request(request);
  while (!engine.is_idle())
    for (const Update& update : engine.step())
      if (update.token) texts[static_cast<std::size_t>(update.request)].push_back(*update.token);
  return texts;
}

std::vector<Ids> texts_of(RequestServer& server, const std::vector<TextRequest>& requests) {
  std::vector<UpdateStream> streams;
  for (const TextRequest& request : requests) streams.push_back(server.stream(request));
  std::vector<Ids> texts;
  for (UpdateStream& stream : streams) texts.push_back(tokens_of(stream));
  return texts;
}

ParallelConfig parallel_config(std::int64_t tp, std::int64_t pp) {
  ParallelConfig parallel;
  parallel.tensor_model_parallel_size = tp;
  parallel.pipeline_model_parallel_size = pp;
  return parallel;
}

/// Calls `body` on each of `world_size` threads.
void run_ranks(std::int64_t world_size, const ParallelConfig& parallel,
               const std::function<void(const Rank&)>& body,
               milliseconds timeout = milliseconds(20'000)) {
  const MeshSizes sizes = mesh_sizes(parallel);
  run_rank_threads(world_size,
                   [&](Communicators& communicators) {
                     body(make_rank(Mesh(sizes, communicators.world_size()), communicators));
                   },
                   {.timeout = timeout});
}

TEST(AsyncEngine, RanksOfAModelSayWhatOneRankSays) {
  const std::vector<Ids> expected = texts_of_one_rank(requests(), 3);
  for (const ParallelConfig& parallel :
       {parallel_config(2, 1), parallel_config(1, 2), parallel_config(2, 2)}) {
    std::vector<Ids> texts;
    run_ranks(mesh_sizes(parallel).tp * mesh_sizes(parallel).pp, parallel, [&](const Rank& rank) {
      const ModelPart part(rank, parallel, 3);
      AsyncEngine engine(part.runner, {}, {.axis = rank.model});
      if (!engine.is_leader()) return engine.wait();
      UpdateStream cancelled = engine.stream(greedy({5}, 500));
      cancelled.next();
      UpdateStream foreign = engine.stream(greedy({61}, 1));
      cancelled.cancel();
      EXPECT_THAT(message_of([&] { tokens_of(foreign); }), HasSubstr("61"));
      texts = texts_of(engine, requests());
    });
    EXPECT_EQ(texts, expected);
  }
}

TEST(AsyncEngine, IdleRanksWaitForLongerThanTheTimeout) {
  run_ranks(
      2, parallel_config(2, 1),
      [](const Rank& rank) {
        SuccessorModel model(50);
        AsyncEngine engine(model, {}, {.axis = rank.model, .heartbeat = milliseconds(50)});
        if (!engine.is_leader()) return engine.wait();
        std::this_thread::sleep_for(milliseconds(2000));
        UpdateStream stream = engine.stream(greedy({3}, 2));
        EXPECT_EQ(tokens_of(stream), Ids({4, 5}));
      },
      milliseconds(1000));
}

/// Returns the error of a request when rank 1 of 2 fails as `fail` says.
std::string error_when_a_rank_fails(const std::function<void(AsyncEngine&)>& fail, int passes) {
  std::string error;
  EXPECT_ANY_THROW(run_ranks(2, parallel_config(2, 1), [&](const Rank& rank) {
    FailingModel model(rank.index == 1 ? passes : 0);
    AsyncEngine engine(model, {}, {.axis = rank.model, .heartbeat = milliseconds(50)});
    if (!engine.is_leader()) return fail(engine);
    UpdateStream first = engine.stream(greedy({3}, kForever)),
                 second = engine.stream(greedy({4}, kForever));
    error = error_of([&] { tokens_of(first); });
    EXPECT_EQ(error_of([&] { tokens_of(second); }), error);
    EXPECT_EQ(error_of([&] { engine.stream(greedy({5}, 1)); }), error);
  }));
  return error;
}

TEST(AsyncEngine, AFailedRankIsNamed) {
  EXPECT_THAT(error_when_a_rank_fails([](AsyncEngine& engine) { engine.wait(); }, 300),
              HasSubstr("rank 1 failed: a pass failed"));
  // The engine of this rank is sound, but its program fails.
  EXPECT_THAT(error_when_a_rank_fails(
                  [](AsyncEngine&) {
                    std::this_thread::sleep_for(milliseconds(300));
                    throw std::runtime_error("the rank was killed");
                  },
                  0),
              HasSubstr("rank 1 failed: the rank was killed"));
}

TEST(AsyncEngine, WeightsChangeBetweenSteps) {
  TextRequest request = greedy(requests()[2].prompt, 600);
  const Ids before = texts_of_one_rank({request}, 3).front();
  ModelPart part(Rank{}, {}, 3);
  AsyncEngine engine(part.runner);
  UpdateStream stream = engine.stream(request);
  Ids text{*stream.next()->token};
  engine.update_weights([&] { part.weights.initialize(4); });
  std::ranges::copy(tokens_of(stream), std::back_inserter(text));
  ASSERT_EQ(text.size(), 600u);
  const auto own = std::ranges::mismatch(text, before).in1 - text.begin();
  ASSERT_LT(own, 600) << "the weights have not changed";
  // The rest is what the new weights say to the prompt and the tokens of the old ones. They may
  // agree on some more tokens.
  request.prompt.insert(request.prompt.end(), text.begin(), text.begin() + own);
  request.params.max_new_tokens = 600 - own;
  EXPECT_EQ(Ids(text.begin() + own, text.end()), texts_of_one_rank({request}, 4).front());
}

TEST(AsyncEngine, RanksOfAModelChangeTheirWeights) {
  const std::vector<Ids> old_texts = texts_of_one_rank(requests(), 3),
                         new_texts = texts_of_one_rank(requests(), 4);
  run_ranks(2, parallel_config(2, 1), [&](const Rank& rank) {
    ModelPart part(rank, parallel_config(2, 1), 3);
    AsyncEngine engine(part.runner, {}, {.axis = rank.model});
    if (engine.is_leader()) {
      EXPECT_EQ(texts_of(engine, requests()), old_texts);
    }
    engine.update_weights([&] { part.weights.initialize(4); });
    if (!engine.is_leader()) return engine.wait();
    EXPECT_EQ(texts_of(engine, requests()), new_texts);
  });
}

TEST(AsyncEngine, AFailedUpdateOfWeightsEndsTheEngine) {
  SuccessorModel model(50);
  AsyncEngine engine(model);
  UpdateStream stream = engine.stream(greedy({3}, kForever));
  const auto fail = [] { throw std::runtime_error("no such weights"); };
  EXPECT_EQ(error_of([&] { engine.update_weights(fail); }), "no such weights");
  EXPECT_EQ(error_of([&] { engine.update_weights([] {}); }), "no such weights");
  EXPECT_EQ(error_of([&] { tokens_of(stream); }), "no such weights");
}

TEST(ReplicaSet, ReplicasSayWhatOneRankSays) {
  const std::vector<Ids> expected = texts_of_one_rank(requests(), 3);
  run_ranks(4, parallel_config(2, 1), [&](const Rank& rank) {
    const ModelPart part(rank, parallel_config(2, 1), 3);
    AsyncEngine engine(part.runner, {}, {.axis = rank.model});
    if (!engine.is_leader()) return engine.wait();
    ReplicaSet replicas(engine, {.axis = rank.dp});
    if (!replicas.is_leader()) return replicas.wait();
    UpdateStream cancelled = replicas.stream(greedy({5}, 500)),
                 other = replicas.stream(greedy({6}, 500));
    cancelled.next();
    UpdateStream foreign = replicas.stream(greedy({61}, 1));
    cancelled.cancel();
    other.cancel();
    EXPECT_THAT(message_of([&] { tokens_of(foreign); }), HasSubstr("61"));
    EXPECT_EQ(texts_of(replicas, requests()), expected);
    replicas.drain();
  });
}

TEST(ReplicaSet, AllReplicasServe) {
  std::vector<std::size_t> num_runs(2);  // sequences in the passes of each replica
  run_ranks(2, {}, [&](const Rank& rank) {
    SuccessorModel model(50);
    {
      AsyncEngine engine(model);
      ReplicaSet replicas(engine, {.axis = rank.dp});
      if (replicas.is_leader()) {
        UpdateStream first = replicas.stream(greedy({3}, kForever)),
                     second = replicas.stream(greedy({4}, kForever));
        first.next();
        second.next();
        for (std::int64_t i = 0; i < 8; ++i) {
          UpdateStream stream = replicas.stream(greedy({i}, 10));
          EXPECT_EQ(tokens_of(stream), successors(i, 10));
        }
      } else {
        replicas.wait();
      }
    }
    num_runs[static_cast<std::size_t>(rank.index)] = model.calls.size();
  });
  EXPECT_GT(num_runs[0], 0u);
  EXPECT_GT(num_runs[1], 0u);
}

TEST(ReplicaSet, AFailedReplicaIsNamed) {
  std::string error;
  EXPECT_ANY_THROW(run_ranks(2, {}, [&](const Rank& rank) {
    FailingModel model(rank.index == 1 ? 300 : 0);
    AsyncEngine engine(model);
    ReplicaSet replicas(engine, {.axis = rank.dp});
    if (!replicas.is_leader()) return replicas.wait();
    UpdateStream first = replicas.stream(greedy({3}, kForever)),
                 second = replicas.stream(greedy({4}, kForever));
    error = error_of([&] { tokens_of(first); });
    EXPECT_EQ(error_of([&] { tokens_of(second); }), error);
  }));
  EXPECT_THAT(error, HasSubstr("rank 1 failed: a pass failed"));
}

TEST(ReplicaSet, AFailedReplicaWithoutRequestsIsNamed) {
  std::string error;
  EXPECT_ANY_THROW(run_ranks(2, {}, [&](const Rank& rank) {
    SuccessorModel model(50);
    AsyncEngine engine(model);
    ReplicaSet replicas(engine, {.axis = rank.dp, .heartbeat = milliseconds(50)});
    if (rank.index == 1) {
      const auto fail = [] { throw std::runtime_error("no such weights"); };
      EXPECT_EQ(error_of([&] { engine.update_weights(fail); }), "no such weights");
      replicas.wait();
    } else {
      error = error_of([&] { replicas.wait(); });
    }
  }));
  EXPECT_THAT(error, HasSubstr("rank 1 failed: no such weights"));
}

TEST(Messages, AreReadAsTheyWereWritten) {
  std::vector<ServingCommand> commands(2);
  commands[0] = {.kind = ServingCommand::Kind::cancel, .request = 7, .replica = -1};
  commands[1].text = {.prompt = {3, 1, 4},
                      .params = {.top_p = 0.1,
                                 .logit_bias = {{.id = 5, .bias = -2.5}},
                                 .termination_id = 9,
                                 .stop = {"", "end"},
                                 .return_routed_experts = true},
                      .site = {.prompt = 8, .sample = 2},
                      .priority = -3,
                      .pooling = Pooling::mean,
                      .normalizes = true};
  const auto read = from_bytes<std::vector<ServingCommand>>(to_bytes(commands));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].kind, ServingCommand::Kind::cancel);
  EXPECT_EQ(read[0].request, 7);
  EXPECT_EQ(read[0].replica, -1);
  EXPECT_EQ(read[1].text.prompt, Ids({3, 1, 4}));
  EXPECT_EQ(read[1].text.params.top_p, 0.1);
  EXPECT_EQ(read[1].text.params.logit_bias.at(0).bias, -2.5);
  EXPECT_EQ(read[1].text.params.termination_id, 9);
  EXPECT_EQ(read[1].text.params.stop, std::vector<std::string>({"", "end"}));
  EXPECT_TRUE(read[1].text.params.return_routed_experts);
  EXPECT_EQ(read[1].text.site.sample, 2u);
  EXPECT_EQ(read[1].text.priority, -3);
  EXPECT_EQ(read[1].text.pooling, Pooling::mean);
  EXPECT_TRUE(read[1].text.normalizes);
  EXPECT_EQ(read[1].text.deadline_s, std::numeric_limits<double>::infinity());

  Update update{.token = 5, .prompt_tokens = {{.id = 4, .logprob = -1, .rank = 3}}};
  update.finished =
      Generation{.stop_string = "end", .stop_token = SampledToken{.id = 9, .logprob = -2}};
  const auto read_update = from_bytes<Update>(to_bytes(update));
  EXPECT_EQ(read_update.prompt_tokens.at(0).rank, 3);
  EXPECT_EQ(read_update.finished->stop_string, "end");
  EXPECT_EQ(read_update.finished->stop_token.value().id, 9);
  EXPECT_EQ(read_update.finished->stop_token->logprob, -2);

  std::vector<News> refused(1);
  refused[0].error = std::make_exception_ptr(UserError({"a", "b", "c"}));
  const auto read_news = from_bytes<std::vector<News>>(to_bytes(refused));
  EXPECT_EQ(message_of([&] { std::rethrow_exception(read_news.at(0).error); }),
            UserError({"a", "b", "c"}).what());
  EXPECT_THROW(from_bytes<std::vector<News>>("x"), InternalError);
  EXPECT_THROW(from_bytes<std::vector<News>>(to_bytes(refused) + "x"), InternalError);
}

}  // namespace
}  // namespace megatron
