// Loads against a server that streams scripted answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/load_test/load.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::StartsWith;

/// The events of an answer of three tokens, with the prompt's length in its usage.
std::vector<std::string> three_tokens(const Json& request) {
  const auto chunk = [](const char* text, const Json& reason = nullptr) {
    const Json choice = {{"index", 0}, {"text", text}, {"finish_reason", reason}};
    return Json{{"choices", Json::array({choice})}}.dump();
  };
  const std::size_t prompt_tokens = request.value("prompt", Json()).size();
  const Json usage = {{"prompt_tokens", prompt_tokens}, {"completion_tokens", 3}};
  const Json last = {{"choices", Json::array()}, {"usage", usage}};
  return {chunk("a"), chunk(""), chunk("c"), chunk("", "length"), last.dump(), "[DONE]"};
}

/// A server on a free loopback port. Each event comes after a pause.
class StubServer {
 public:
  using Answer = std::function<std::vector<std::string>(const Json& request)>;

  explicit StubServer(const Answer& answer = three_tokens, const std::string& prefix = "") {
    // A connection that is kept takes a thread of the server.
    http_.new_task_queue = [] { return new httplib::ThreadPool(32); };
    http_.Post(prefix + "/v1/completions", [this, answer](const auto& request, auto& response) {
      const int now_in_flight = ++in_flight;
      most_in_flight = std::max(most_in_flight.load(), now_in_flight);
      const Json body = parse_json(request.body, "request");
      {
        const std::lock_guard lock(mutex);
        bodies.push_back(body);
        authorization = request.get_header_value("Authorization");
      }
      const auto events = std::make_shared<std::vector<std::string>>(answer(body));
      if (events->empty()) {
        response.status = 429;
        response.set_content(R"({"error": {"message": "the queue is full"}})", "application/json");
        --in_flight;
        return;
      }
      response.set_chunked_content_provider(
          "text/event-stream", [this, events](std::size_t, httplib::DataSink& sink) {
            for (const std::string& event : *events) {
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
              const std::string text = "data: " + event + "\n\n";
              sink.write(text.data(), text.size());
            }
            --in_flight;
            sink.done();
            return true;
          });
    });
    http_.Post(prefix + "/v1/chat/completions", http_handler_of_chat());
    http_.Get(prefix + "/v1/models", [](const auto&, auto& response) {
      response.set_content(R"({"data": [{"id": "first"}, {"id": "second"}]})", "application/json");
    });
    http_.Post(prefix + "/tokenize", [](const auto&, auto& response) {
      response.set_content(R"({"tokens": [5, 6, 7]})", "application/json");
    });
    port_ = http_.bind_to_any_port("127.0.0.1");
    thread_ = std::jthread([this] { http_.listen_after_bind(); });
    while (!http_.is_running()) std::this_thread::yield();
  }
  ~StubServer() { http_.stop(); }

  BenchServeOptions options() const {
    BenchServeOptions options;
    options.url = "http://127.0.0.1:" + std::to_string(port_);
    options.model = "first";
    options.data = "prompt_tokens=7,output_tokens=3";
    options.num_prompts = 20;
    return options;
  }

  std::mutex mutex;
  std::vector<Json> bodies;
  std::string authorization;
  std::atomic<int> in_flight = 0, most_in_flight = 0;

 private:
  static httplib::Server::Handler http_handler_of_chat() {
    return [](const httplib::Request&, httplib::Response& response) {
      response.set_content(
          "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"
          "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"x\"}}]}\r\n\r\n"
          ": a comment\r\n\r\n"
          "data: {\"choices\":[{\"delta\":{\"content\":\"y\"}}]}\r\n\r\n"
          "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n"
          "data: [DONE]\r\n\r\n",
          "text/event-stream");
    };
  }

  httplib::Server http_;
  int port_ = 0;
  std::jthread thread_;
};

Measurements measure(const Load& load, const BenchServeOptions& options) {
  const Trace trace(options, {5, 6, 7});
  return measure_records(load, run_load(load, options, trace));
}

TEST(RunLoad, CountsRequestsAndTokensExactly) {
  StubServer server;
  const Measurements m = measure({"4 concurrent", {}, 4}, server.options());
  EXPECT_EQ(m.num_completed, 20u);
  EXPECT_TRUE(m.errors.empty());
  EXPECT_EQ(m.input_tokens, 20 * 7);
  EXPECT_EQ(m.output_tokens, 20 * 3);
  EXPECT_EQ(m.first_token.size(), 20u);
  EXPECT_EQ(m.inter_token.size(), 20u * 2);
  EXPECT_TRUE(m.late_start.empty());
  EXPECT_GE(m.first_token.front(), 0.002);
  EXPECT_GE(m.end_to_end.front(), 0.012);
  EXPECT_GE(m.duration_s, 5 * 0.012);
  EXPECT_LE(server.most_in_flight, 4);
  EXPECT_EQ(server.bodies.size(), 20u);
}

TEST(RunLoad, SendsTheTraceOfTheSeed) {
  StubServer server, again;
  const BenchServeOptions options = server.options();
  measure({"synchronous"}, options);
  BenchServeOptions other = again.options();
  measure({"synchronous"}, other);
  EXPECT_EQ(server.bodies, again.bodies);
}

TEST(RunLoad, StartsRequestsAtTheRate) {
  StubServer server;
  BenchServeOptions options = server.options();
  options.num_prompts = 11;
  const Measurements m = measure({"constant 50/s", {50, std::nullopt}, 100}, options);
  EXPECT_EQ(m.late_start.size(), 11u);
  EXPECT_GE(m.late_start.front(), 0);
  EXPECT_GE(m.duration_s, 0.1);  // half of ten gaps, as the first one may start late
}

TEST(RunLoad, StopsAfterTheSeconds) {
  StubServer server;
  BenchServeOptions options = server.options();
  options.num_prompts.reset();
  options.max_seconds = 0.3;
  const Measurements m = measure({"constant 20/s", {20, std::nullopt}, 8}, options);
  EXPECT_GE(m.num_completed, 1u);
  EXPECT_LE(m.num_completed, 6u);  // the seventh is due after 0.3 s
}

TEST(RunLoad, NamesFailures) {
  std::atomic<int> number = 0;
  StubServer refusing([&](const Json& request) {
    return number++ % 3 == 0 ? std::vector<std::string>{} : three_tokens(request);
  });
  const Measurements some = measure({"synchronous"}, refusing.options());
  EXPECT_EQ(some.num_completed, 13u);
  EXPECT_EQ(some.first_token.size(), 13u);
  EXPECT_THAT(some.errors, ElementsAre(Pair("HTTP 429: the queue is full", 7u)));

  StubServer cut([](const Json& request) {
    std::vector<std::string> events = three_tokens(request);
    events.pop_back();
    return events;
  });
  EXPECT_THAT(measure({"synchronous"}, cut.options()).errors,
              ElementsAre(Pair("the answer ended early", 20u)));

  StubServer silent([](const Json&) { return std::vector<std::string>{"[DONE]"}; });
  EXPECT_THAT(measure({"synchronous"}, silent.options()).errors,
              ElementsAre(Pair("the answer has no token", 20u)));

  StubServer broken([](const Json&) {
    return std::vector<std::string>{R"({"error": {"message": "no memory"}})", "[DONE]"};
  });
  EXPECT_THAT(measure({"synchronous"}, broken.options()).errors,
              ElementsAre(Pair("error in the stream: no memory", 20u)));
}

TEST(RunLoad, SaysThatNobodyListens) {
  BenchServeOptions options;
  {
    const StubServer server;
    options = server.options();
  }
  options.num_prompts = 2;
  const Measurements m = measure({"synchronous"}, options);
  ASSERT_EQ(m.errors.size(), 1u);
  EXPECT_THAT(m.errors.begin()->first, StartsWith("no answer"));
  EXPECT_THROW(first_model(options), UserError);
  EXPECT_TRUE(tokenize(options, "text").empty());
}

TEST(RunLoad, ReadsChats) {
  StubServer server;
  BenchServeOptions options = server.options();
  options.endpoint = "chat";
  const Trace trace(options, {});
  const Measurements m =
      measure_records({"synchronous"}, run_load({"synchronous"}, options, trace));
  EXPECT_EQ(m.num_completed, 20u);
  EXPECT_EQ(m.output_tokens, 20 * 2);  // chunks with text, as there is no usage
  EXPECT_EQ(m.input_tokens, 0);
}

TEST(RunLoad, FindsTheServer) {
  StubServer server(three_tokens, "/proxy");
  BenchServeOptions options = server.options();
  options.url += "/proxy/v1/";
  options.api_key = "secret";
  EXPECT_EQ(first_model(options), "first");
  EXPECT_THAT(tokenize(options, "text"), ElementsAre(5, 6, 7));
  EXPECT_EQ(measure({"synchronous"}, options).num_completed, 20u);
  EXPECT_EQ(server.authorization, "Bearer secret");
  for (const char* url : {"", "localhost:8000", "ftp://localhost"}) {
    options.url = url;
    EXPECT_THROW(first_model(options), UserError) << url;
  }
}

// The rates of GuideLLM: np.linspace(synchronous, throughput, loads - 1)[1:].
TEST(RunProfile, SweepsFromSynchronousToThroughput) {
  BenchServeOptions options;
  options.profile = "sweep";
  options.rates = {5};
  std::vector<double> rates;
  const auto loads = run_profile(options, [&](const Load& load) {
    rates.push_back(load.arrivals.rate);
    Measurements m{.load = load, .duration_s = 1};
    m.num_completed = load.name == "synchronous" ? 2 : 8;
    return m;
  });
  ASSERT_EQ(loads.size(), 5u);
  EXPECT_EQ(loads[0].load.num_streams, 1);
  EXPECT_EQ(loads[1].load.name, "throughput");
  EXPECT_EQ(loads[1].load.num_streams, 1000);
  EXPECT_THAT(std::vector(rates.begin() + 2, rates.end()), ElementsAre(4, 6, 8));
}

TEST(RunProfile, RunsALoadForEachRate) {
  BenchServeOptions options;
  std::vector<std::string> names;
  const auto note = [&](const Load& load) {
    names.push_back(load.name + ", " + std::to_string(load.num_streams));
    return Measurements{};
  };
  options.profile = "concurrent";
  options.rates = {1, 16};
  run_profile(options, note);
  options.profile = "poisson";
  options.max_concurrency = 7;
  options.rates = {0.5, std::numeric_limits<double>::infinity()};
  run_profile(options, note);
  EXPECT_THAT(names, ElementsAre("1 concurrent, 1", "16 concurrent, 16", "poisson 0.5/s, 7",
                                 "throughput, 7"));
}

// By hand, as numpy.quantile computes them.
TEST(Quantile, InterpolatesLinearly) {
  const std::vector<double> numbers = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(quantile(numbers, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(numbers, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(quantile(numbers, 1), 4);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace megatron
