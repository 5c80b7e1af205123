#include "megatron/training/observability/prometheus_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

/// Sends one request over a raw socket and reads until the server closes it.
std::string answer(int port, const std::string& path) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<std::uint16_t>(port)),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
  EXPECT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(connection, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = ::recv(connection, buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  ::close(connection);
  return text;
}

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
