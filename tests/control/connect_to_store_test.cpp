// A store is waited for, and other services that listen at its port are named.
#include "megatron/control/connect_to_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "megatron/control/store_service.h"
#include "support/check_store.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

/// Accepts one connection after the other and answers the first line that it receives. An answer of
/// "" closes the connection at once.
class ForeignService {
 public:
  explicit ForeignService(std::string answer)
      : answer_(std::move(answer)), socket_(local_socket()), thread_([this] { serve(); }) {}
  ~ForeignService() {
    ::shutdown(socket_.descriptor(), SHUT_RDWR);
    thread_.join();
  }
  StoreAddress address() const { return {"127.0.0.1", socket_.port()}; }

 private:
  void serve() {
    for (int client; (client = ::accept(socket_.descriptor(), nullptr, nullptr)) >= 0;) {
      std::string foreign_reply;
      std::array<char, 64> buffer{};
      while (!answer_.empty() && foreign_reply.find('\n') == std::string::npos) {
        const ssize_t count = ::recv(client, buffer.data(), buffer.size(), 0);
        if (count <= 0) break;
        foreign_reply.append(buffer.data(), static_cast<std::size_t>(count));
      }
      ::send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      ::close(client);
    }
  }

  const std::string answer_;
  ListeningSocket socket_;
  std::thread thread_;
};

std::string refusal(const StoreAddress& address, const StoreConnectOptions& options) {
  return message_of([&] { connect_to_store(address, options); });
}

TEST(ConnectToStore, NamesAServiceThatAnswersInItsOwnWay) {
  const ForeignService web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(
      refusal(web.address(), {}),
      AllOf(HasSubstr("what listens at " + web.address().text() +
                      ": is another service, not rank 0 of this run (which answered 'HTTP/1.1 400"),
            HasSubstr("--master-port")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(ConnectToStore, WritesAnIpv6AddressInBrackets) {
  const std::int64_t port = local_socket().port();  // nothing listens there
  EXPECT_THAT(refusal({"::1", port}, {.timeout = milliseconds(1)}),
              HasSubstr("rank 0 at [::1]:" + std::to_string(port) + ": does not answer"));
}

TEST(ConnectToStore, NamesAServiceThatCloses) {
  const ForeignService service("");
  EXPECT_THAT(refusal(service.address(), {.timeout = milliseconds(1'000)}),
              HasSubstr("which closes every connection"));
}

/// Rank 0's launcher starts late, and rank 0 serves the port later still. The limit for silence
/// starts when the port opens.
TEST(ConnectToStore, WaitsForAPortThatOpensLate) {
  const std::int64_t port = local_socket().port();  // nothing listens there yet
  std::thread late([port] {
    std::this_thread::sleep_for(milliseconds(2'000));
    ListeningSocket socket({.port = port, .loopback_only = true});
    std::this_thread::sleep_for(milliseconds(2'000));
    const StoreServer server(std::move(socket));
    std::this_thread::sleep_for(milliseconds(1'000));
  });
  EXPECT_EQ(refusal({"127.0.0.1", port}, {.timeout = milliseconds(3'500)}), "no error");
  late.join();
}

/// A proxy in front of a pod that is not up yet closes connections.
TEST(ConnectToStore, WaitsForAServiceThatClosesAtFirst) {
  ListeningSocket socket = local_socket();
  const std::int64_t port = socket.port();
  std::thread proxy([&] {
    for (const auto start = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() - start < milliseconds(6'000);) {
      ::close(::accept(socket.descriptor(), nullptr, nullptr));
    }
    const StoreServer server(std::move(socket));
    std::this_thread::sleep_for(milliseconds(2'000));
  });
  EXPECT_EQ(refusal({"127.0.0.1", port}, {.timeout = milliseconds(30'000)}), "no error");
  proxy.join();
}

TEST(ConnectToStore, NamesTheOwnerOfTheAddress) {
  const ForeignService web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const StoreAddress agent{"127.0.0.1", web.address().port, "the launcher's agent"};
  EXPECT_THAT(refusal(agent, {}),
              HasSubstr("is another service, not the launcher's agent of this run"));
}

TEST(ConnectToStore, SpeaksOfAServiceThatIsSilent) {
  const ListeningSocket silent = local_socket();
  std::string told;
  EXPECT_THAT(refusal({"127.0.0.1", silent.port()},
                      {.timeout = milliseconds(6'000),
                       .progress = [&](double, const std::string& line) { told = line; }}),
              HasSubstr("has not answered for 6 s: rank 0 of this run is stopped, or another"));
  EXPECT_EQ(told,
            "the port is open, but no store of a run answers there: rank 0 is not ready, or "
            "another program has the port");
}

}  // namespace
}  // namespace megatron
