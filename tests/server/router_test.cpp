#include "megatron/server/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>

#include "megatron/base/error.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

/// A server with a route of each kind: /open, /keyed, /generate, which answers its body, and /wait,
/// which keeps its replies.
class Served {
 public:
  explicit Served(RouterOptions options = {})
      : router([&] {
          options.logs_access = false;
          return options;
        }()),
        server_({}, [this](const HttpRequest& request, HttpReply reply) {
          router.answer(request, std::move(reply));
        }) {
    const HttpHandler echo = [](const HttpRequest& request, HttpReply reply) {
      reply.set_usage({.prompt_tokens = 12,
                       .cached_tokens = 8,
                       .new_tokens = 3,
                       .first_token_s = 0.25,
                       .last_token_s = 0.45});
      reply.send(200, request.body);
    };
    router.add("GET", "/open", echo, RouteAccess::open);
    router.add("GET", "/keyed", echo, RouteAccess::keyed);
    router.add("POST", "/generate", echo);
    router.add("POST", "/generate/*", echo);
    router.add("POST", "/user-error", [](const HttpRequest&, const HttpReply&) {
      throw UserError({"field 'n'", "must be at least 1", "give 1"});
    });
    router.add("POST", "/wait", [this](const HttpRequest&, HttpReply reply) {
      const std::lock_guard lock(mutex);
      waiting.push_back(std::move(reply));
    });
    router.set_max_open(100);
    router.set_state(HttpRouter::State::ready);
  }

  RawAnswer ask(const std::string& request, bool has_body = true) const {
    RawClient client(server_.port());
    client.send(request);
    return client.answer(has_body);
  }
  std::int64_t port() const { return server_.port(); }

  HttpRouter router;
  std::mutex mutex;
  std::deque<HttpReply> waiting;  ///< guarded by mutex

 private:
  HttpServer server_;
};

TEST(HttpRouter, FindsRoutesAndNamesTheNearest) {
  const Served served;
  EXPECT_EQ(served.ask(post("/generate", "text")).body, "text");
  EXPECT_EQ(served.ask(post("/generate/any/name", "text")).status, 200);
  RawAnswer answer = served.ask(post("/generte", ""));
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, R"({"error":{"message":"there is no /generte; did you mean /generate?",)"
                         R"("type":"invalid_request_error","param":null,"code":"not_found"}})");
  answer = served.ask(get("/generate"));
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers["allow"], "POST, OPTIONS");
  EXPECT_EQ(served.ask(get("/open", "", "HEAD"), /*has_body=*/false).status, 200);
  answer = served.ask(get("/open", "", "OPTIONS"), /*has_body=*/false);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers["allow"], "GET, HEAD, OPTIONS");
  answer = served.ask(post("/user-error", ""));
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("field 'n': must be at least 1"));
}

TEST(HttpRouter, AsksForAKey) {
  const Served served({.api_keys = {"first", "second"}});
  EXPECT_EQ(served.ask(get("/open")).status, 200);
  RawAnswer answer = served.ask(get("/keyed"));
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers["www-authenticate"], "Bearer");
  for (const char* wrong : {"Authorization: Bearer firs\r\n", "Authorization: Bearer \r\n",
                            "Authorization: first\r\n", "X-Api-Key: firstfirst\r\n"})
    EXPECT_EQ(served.ask(get("/keyed", wrong)).status, 401) << wrong;
  EXPECT_EQ(served.ask(get("/keyed", "Authorization: Bearer first\r\n")).status, 200);
  EXPECT_EQ(served.ask(get("/keyed", "authorization: bearer second\r\n")).status, 200);
  EXPECT_EQ(served.ask(get("/keyed", "x-api-key: second\r\n")).status, 200);
}

TEST(HttpRouter, RefusesWhileTheModelDoesNotServe) {
  Served served;
  using State = HttpRouter::State;
  for (const auto& [state, text] :
       {std::pair(State::loading, "being loaded"), std::pair(State::draining, "is stopping"),
        std::pair(State::failed, "has failed: rank 1 died")}) {
    served.router.set_state(state, "rank 1 died");
    RawAnswer answer = served.ask(post("/generate", ""));
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr(text));
    EXPECT_EQ(answer.headers["retry-after"], "5");
    EXPECT_EQ(served.ask(get("/open")).status, 200);
  }
}

TEST(HttpRouter, LimitsTheRequestsThatWait) {
  Served served;
  served.router.set_max_open(2);
  std::deque<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(served.port());
    clients.back().send(post("/wait", ""));
  }
  ASSERT_TRUE(eventually([&] { return served.router.num_open() == 2; }));
  RawAnswer answer = served.ask(post("/generate", ""));
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.headers["retry-after"], "1");
  EXPECT_THAT(answer.body, HasSubstr(R"("type":"rate_limit_error")"));
  EXPECT_EQ(served.ask(get("/keyed")).status, 200) << "it does not wait";
  clients.front().close();  // a client that goes leaves its place
  ASSERT_TRUE(eventually([&] { return served.router.num_open() == 1; }));
  EXPECT_EQ(served.ask(post("/generate", "text")).status, 200);
  {
    const std::lock_guard lock(served.mutex);
    for (HttpReply& reply : served.waiting) reply.send(200, "done");
  }
  EXPECT_EQ(clients.back().answer().body, "done");
  EXPECT_TRUE(eventually([&] { return served.router.num_open() == 0; }));
}

TEST(HttpRouter, LimitsRequestsThatComeTogether) {
  constexpr int kPlaces = 5, kClients = 20;
  Served served;
  served.router.set_max_open(kPlaces);
  std::deque<RawClient> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(served.port());
  for (const RawClient& client : clients) client.send(post("/wait", ""));
  const auto num_waiting = [&] {
    const std::lock_guard lock(served.mutex);
    return std::ssize(served.waiting);
  };
  EXPECT_TRUE(eventually([&] {
    return kClients - kPlaces == std::ranges::count_if(clients, [](RawClient& client) {
             return client.read_until("HTTP/1.1 429", 0.01);
           });
  }));
  EXPECT_EQ(num_waiting(), kPlaces);
  const std::lock_guard lock(served.mutex);
  for (HttpReply& reply : served.waiting) reply.send(200, "done");
}

TEST(HttpRouter, ErrorsHaveTheFormOfTheApi) {
  Served served({.api_keys = {"key"}});
  served.router.add("POST", "/v1/messages",
                    [](const HttpRequest&, HttpReply reply) { send_error(reply, 413, "large"); });
  const auto error = [&](const std::string& request) { return served.ask(request).body; };
  const std::string key = "x-api-key: key\r\n";
  EXPECT_EQ(error(post("/v1/messages", "")),
            R"({"type":"error","error":{"type":"authentication_error",)"
            R"("message":"give a valid key: Authorization: Bearer KEY"}})");
  EXPECT_THAT(error(post("/v1/messages", "", key)), HasSubstr(R"({"type":"request_too_large",)"));
  EXPECT_THAT(error(post("/v1/messages/count", "")), HasSubstr(R"({"type":"not_found_error",)"));
  EXPECT_THAT(error(get("/v1/messages")), HasSubstr(R"({"type":"invalid_request_error",)"));
  served.router.set_max_open(0);
  EXPECT_THAT(error(post("/v1/messages", "", key)), HasSubstr(R"({"type":"rate_limit_error",)"));
  served.router.set_state(HttpRouter::State::draining);
  EXPECT_THAT(error(post("/v1/messages", "", key)), HasSubstr(R"({"type":"overloaded_error",)"));
  EXPECT_THAT(error(post("/generate", "", key)), HasSubstr(R"("code":"draining")"));
}

TEST(HttpRouter, NamesRequests) {
  const Served served;
  EXPECT_EQ(served.ask(get("/open", "X-Request-Id: my-id.7\r\n")).headers["x-request-id"],
            "my-id.7");
  RawAnswer one = served.ask(get("/open", "X-Request-Id: a b\r\n")),
            other = served.ask(get("/open"));
  EXPECT_FALSE(one.headers["x-request-id"].empty());
  EXPECT_NE(one.headers["x-request-id"], "a b");
  EXPECT_NE(one.headers["x-request-id"], other.headers["x-request-id"]);
}

TEST(HttpRouter, AllowsOriginsThatItIsTold) {
  const Served closed, open({.allowed_origins = {"https://page.example"}});
  const std::string origin = "Origin: https://page.example\r\n";
  EXPECT_FALSE(closed.ask(get("/open", origin)).headers.contains("access-control-allow-origin"));
  RawAnswer answer = open.ask(get("/open", origin));
  EXPECT_EQ(answer.headers["access-control-allow-origin"], "https://page.example");
  EXPECT_FALSE(open.ask(get("/open", "Origin: https://other.example\r\n"))
                   .headers.contains("access-control-allow-origin"));
  answer = open.ask(
      get("/generate", origin + "Access-Control-Request-Headers: authorization\r\n", "OPTIONS"),
      /*has_body=*/false);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers["access-control-allow-headers"], "authorization");
}

TEST(HttpRouter, CountsRequestsAndTokens) {
  const Served served;
  for (int i = 0; i < 3; ++i) served.ask(post("/generate", ""));
  served.ask(get("/nothing"));
  std::string text;
  EXPECT_TRUE(eventually([&] {
    ExpositionWriter out;
    served.router.metrics().write(out);
    text = std::move(out).text();
    return text.find("status=\"404\"} 1\n") != std::string::npos &&
           text.find("status=\"200\"} 3\n") != std::string::npos;
  })) << text;
  for (const char* line :
       {"megatron_requests_total{path=\"/generate\",status=\"200\"} 3\n",
        "megatron_requests_total{path=\"other\",status=\"404\"} 1\n",
        "megatron_prompt_tokens_total 36\n", "megatron_prefix_cache_hits_total 24\n",
        "megatron_generation_tokens_total 9\n",
        "megatron_time_to_first_token_seconds_bucket{le=\"0.1\"} 0\n",
        "megatron_time_to_first_token_seconds_bucket{le=\"0.3\"} 3\n",
        "megatron_time_to_first_token_seconds_bucket{le=\"+Inf\"} 3\n",
        "megatron_time_to_first_token_seconds_sum 0.75\n",
        "megatron_inter_token_latency_seconds_count 6\n",
        "# TYPE megatron_e2e_request_latency_seconds histogram\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace megatron
