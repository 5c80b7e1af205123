#include "megatron/server/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;

class Operation : public testing::Test {
 protected:
  Operation()
      : router_({.logs_access = false}),
        server_({}, [this](const HttpRequest& request, HttpReply reply) {
          router_.answer(request, std::move(reply));
        }) {
    add_operation_routes(router_, "1.2.3", [] {
      return EngineLoad{.num_running = 3, .num_waiting = 2, .cache_usage = 0.5};
    });
  }

  RawAnswer ask(const std::string& path) {
    RawClient client(server_.port());
    client.send(get(path));
    return client.answer();
  }

  HttpRouter router_;
  HttpServer server_;
};

TEST_F(Operation, TellsWhetherTheModelServes) {
  EXPECT_EQ(ask("/health").status, 503);
  EXPECT_EQ(ask("/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(ask("/v1/models").status, 503) << "a path of the model that is not there yet";
  router_.set_state(HttpRouter::State::ready);
  EXPECT_EQ(ask("/health").status, 200);
  EXPECT_EQ(ask("/ping").status, 200);
  router_.set_state(HttpRouter::State::failed, "rank 3 was killed by SIGKILL");
  const RawAnswer answer = ask("/health");
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("rank 3 was killed by SIGKILL"));
}

TEST_F(Operation, ListsTheModels) {
  add_model_routes(router_, {"small", "other/name"}, 4096);
  router_.set_state(HttpRouter::State::ready);
  const std::string list = ask("/v1/models").body;
  EXPECT_THAT(list, HasSubstr(R"({"object":"list","data":[{"id":"small","object":"model",)"));
  EXPECT_THAT(list, HasSubstr(R"("max_model_len":4096)"));
  EXPECT_THAT(ask("/v1/models/other/name").body, HasSubstr(R"("id":"other/name")"));
  EXPECT_EQ(ask("/v1/models/large").status, 404);
}

TEST_F(Operation, WritesMetrics) {
  RawAnswer answer = ask("/metrics");
  EXPECT_EQ(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line : {"megatron_num_requests_running 3\n", "megatron_num_requests_waiting 2\n",
                           "megatron_kv_cache_usage_ratio 0.5\n", "# HELP megatron_num_requests "})
    EXPECT_THAT(answer.body, HasSubstr(line));
}

}  // namespace
}  // namespace megatron
