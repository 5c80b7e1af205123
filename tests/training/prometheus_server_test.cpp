#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/training/observability/prometheus_output.h"
#include "support/message_of.h"
#include "training/http_answer.h"

namespace megatron {
namespace {

TEST(PrometheusServer, AnswersMetricsAndNothingElse) {
  int asked = 0;
  PrometheusServer server({}, [&] { return "value " + std::to_string(++asked) + "\n"; });
  EXPECT_THAT(answer(server.port(), "/metrics"), testing::HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer(server.port(), "/metrics"), testing::EndsWith("value 2\n"));
  EXPECT_THAT(answer(server.port(), "/"), testing::StartsWith("HTTP/1.1 404"));
}

TEST(PrometheusServer, APortInUseIsTheUsersMistake) {
  const PrometheusServer first({}, [] { return ""; });
  try {
    const PrometheusServer second({.port = first.port()}, [] { return ""; });
    FAIL() << "two servers on one port";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("--prometheus-port " + std::to_string(first.port())));
    EXPECT_THAT(error.what(), testing::HasSubstr("choose another port"));
  }
}

TEST(PrometheusServer, AnAddressOfAnotherHostIsTheUsersMistake) {
  for (const char* host : {"192.0.2.1", "no.such.host.invalid"}) {
    EXPECT_THAT(message_of([&] { PrometheusServer({.host = host}, [] { return ""; }); }),
                testing::HasSubstr("is not an address of this host"));
  }
}

TEST(PrometheusServer, GivesThePortBack) {
  int port = 0;
  {
    const PrometheusServer first({}, [] { return ""; });
    port = first.port();
  }
  EXPECT_NO_THROW(PrometheusServer({.port = port}, [] { return ""; }));
}

}  // namespace
}  // namespace megatron
