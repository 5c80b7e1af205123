#include "megatron/training/observability/prometheus_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "training/http_answer.h"

namespace megatron {
namespace {

TEST(PrometheusServer, AnswersMetricsAndNothingElse) {
  int asked = 0;
  PrometheusServer server(0, [&] { return "value " + std::to_string(++asked) + "\n"; });
  EXPECT_THAT(answer(server.port(), "/metrics"), testing::HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer(server.port(), "/metrics"), testing::EndsWith("value 2\n"));
  EXPECT_THAT(answer(server.port(), "/"), testing::StartsWith("HTTP/1.1 404"));
}

TEST(PrometheusServer, APortInUseIsTheUsersMistake) {
  const PrometheusServer first(0, [] { return ""; });
  try {
    const PrometheusServer second(first.port(), [] { return ""; });
    FAIL() << "two servers on one port";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("--prometheus-port " + std::to_string(first.port())));
    EXPECT_THAT(error.what(), testing::HasSubstr("choose another port"));
  }
}

TEST(PrometheusServer, GivesThePortBack) {
  int port = 0;
  {
    const PrometheusServer first(0, [] { return ""; });
    port = first.port();
  }
  EXPECT_NO_THROW(PrometheusServer(port, [] { return ""; }));
}

}  // namespace
}  // namespace megatron
