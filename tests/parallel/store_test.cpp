// The run's store: its calls, its deadlines, and the errors for a port where another service
// listens.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "megatron/base/error.h"
#include "megatron/control/connect_to_store.h"
#include "megatron/control/run_store.h"
#include "megatron/control/store_protocol.h"
#include "megatron/control/store_server.h"
#include "megatron/parallel/rendezvous/c10d_store.h"
#include "support/message_of.h"

namespace {
std::atomic<int> num_names_asked{0};
}

/// Replaces the C library's function and counts the queries that would go to a resolver.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host,
                           socklen_t host_size, char* service, socklen_t service_size, int flags) {
  static const auto real =
      reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NUMERICHOST) == 0) ++num_names_asked;
  return real(address, length, host, host_size, service, service_size, flags);
}

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

ListeningSocket local_socket() { return ListeningSocket({.port = 0, .loopback_only = true}); }

void check_calls(RunStore store) {
  EXPECT_EQ(store.find("a"), std::nullopt);
  store.set("a", "1");
  EXPECT_EQ(store.find("a"), "1");
  EXPECT_EQ(store.with_prefix("other").find("a"), std::nullopt);
  EXPECT_EQ(store.compare_set("a", "2", "3"), "1");
  EXPECT_EQ(store.compare_set("a", "1", "3"), "3");
  EXPECT_EQ(store.compare_set("b", "", "4"), "4");
  EXPECT_EQ(store.add("count", 2), 2);
  EXPECT_EQ(store.add("count", -5), -3);
  EXPECT_EQ(store.get_all({"a", "b"}), (std::vector<std::string>{"3", "4"}));
  EXPECT_TRUE(store.has_all({"a", "b"}));
  EXPECT_FALSE(store.has_all({"a", "c"}));
  EXPECT_FALSE(store.poll("c", milliseconds(30)));
  EXPECT_TRUE(store.remove("a"));
  EXPECT_FALSE(store.remove("a"));
  const std::string large(3'000'000, 'x');
  store.set("large", large);
  EXPECT_EQ(store.find("large"), large);
}

TEST(RunStore, Answers) { check_calls(RunStore::host(local_socket(), milliseconds(10'000))); }

/// torchrun's agent hosts c10d's own store.
TEST(RunStore, SpeaksWithAStoreOfC10d) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  check_calls(RunStore(
      connect_to_store({"127.0.0.1", agent.getPort()}, {.timeout = milliseconds(10'000)})));
}

/// Gloo and NCCL see the keys below a prefix. NCCL looks for a PrefixStore.
TEST(RunStore, IsAStoreOfC10dToLibraries) {
  using Bytes = std::vector<std::uint8_t>;
  RunStore run = RunStore::host(local_socket(), milliseconds(10'000)).with_prefix("run");
  const auto store = make_c10d_store(run, "group/gloo");
  ASSERT_NE(dynamic_cast<c10d::PrefixStore*>(store.get()), nullptr);
  store->set("a", Bytes{'1', '\0'});
  EXPECT_EQ(run.find("group/gloo/a"), std::string("1\0", 2));
  EXPECT_EQ(store->compareSet("b", Bytes{}, Bytes{'2'}), Bytes{'2'});
  run.set("group/gloo/c", "3");
  EXPECT_EQ(store->get("c"), Bytes{'3'});
  EXPECT_EQ(store->add("sum", 4), 4);
  EXPECT_TRUE(store->check({"a", "b", "c"}));
  EXPECT_FALSE(store->check({"d"}));
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_THROW(store->wait({"a"}, milliseconds(30)), c10::DistStoreError);
}

TEST(RunStore, ServesManyAtOnce) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const StoreServer server(std::move(socket));
  std::vector<std::thread> threads;
  for (int client = 0; client < 8; ++client) {
    threads.emplace_back([&] {
      RunStore store(connect_to_store(address, {}));
      for (int i = 0; i < 200; ++i) store.add("sum", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(RunStore(connect_to_store(address, {})).add("sum", 0), 1600);
}

/// c10d's own server resolves the name of every client, which takes seconds per connection when the
/// resolver does not answer.
TEST(RunStore, AsksNobodyForNames) {
  const int before = num_names_asked;
  check_calls(RunStore::host(local_socket(), milliseconds(10'000)));
  EXPECT_EQ(num_names_asked, before);
  c10d::TCPStoreOptions options;
  options.isServer = true;
  const c10d::TCPStore other("127.0.0.1", options);
  EXPECT_GT(num_names_asked, before) << "the count sees nothing";
}

/// A process that hosts a store is suspended.
TEST(RunStore, EveryCallEndsWhenTheHostIsStopped) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const pid_t host = ::fork();
  if (host == 0) {
    const StoreServer server(std::move(socket));
    while (true) ::pause();
  }
  RunStore store(connect_to_store(address, {.timeout = milliseconds(60'000)}));
  store.set("a", "1");
  ::kill(host, SIGSTOP);
  ::waitpid(host, nullptr, WUNTRACED);  // all its threads have stopped
  const auto start = std::chrono::steady_clock::now();
  std::thread impatient([&] {
    std::this_thread::sleep_for(milliseconds(300));
    store.set_timeout(milliseconds(800));  // also limits the call under way
  });
  try {
    store.find("a");
    ADD_FAILURE() << "a stopped process has answered";
  } catch (const StoreLost& error) {
    EXPECT_EQ(std::string(error.what()),
              "rank 0, which hosts the run's store at " + address.text() +
                  ", has not answered for 0.8 s: its process is stopped, or the network is cut");
  }
  EXPECT_THROW(store.set("b", "2"), StoreLost);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  impatient.join();
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
}

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

TEST(ReachStore, NamesAServiceThatAnswersInItsOwnWay) {
  const ForeignService web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(
      refusal(web.address(), {}),
      AllOf(HasSubstr("what listens at " + web.address().text() +
                      ": is another service, not rank 0 of this run (which answered 'HTTP/1.1 400"),
            HasSubstr("--master-port")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(ReachStore, NamesAServiceThatCloses) {
  const ForeignService service("");
  EXPECT_THAT(refusal(service.address(), {.timeout = milliseconds(1'000)}),
              HasSubstr("which closes every connection"));
}

// ---- last wills ----

TEST(RunStore, ExecutesTheLastWillOfALostConnection) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  RunStore store = RunStore::host(std::move(socket), milliseconds(5'000)).with_prefix("run");
  {
    RunStore lost = RunStore(connect_to_store(address, {})).with_prefix("run");
    lost.set_last_will("lost", "earlier ");
    lost.set_last_will("lost", "5 ");
    RunStore polite = RunStore(connect_to_store(address, {})).with_prefix("run");
    polite.set_last_will("lost", "6 ");
    polite.withdraw_last_will();
    EXPECT_EQ(store.find("lost"), std::nullopt);
  }
  EXPECT_TRUE(store.poll("lost", milliseconds(5'000)));
  {
    RunStore other = RunStore(connect_to_store(address, {})).with_prefix("run");
    other.set_last_will("lost", "7 ");
  }
  for (int i = 0; i < 500 && store.find("lost") != "5 7 "; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(store.find("lost"), "5 7 ");
}

// ---- the job token ----

TEST(RunStore, AsksForTheToken) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const RunStore store = RunStore::host(std::move(socket), milliseconds(5'000), "secret");
  check_calls(RunStore(connect_to_store(address, {.token = "secret"})));
  EXPECT_THAT(refusal(address, {}), HasSubstr("asks for a job token, but this rank has none"));
  for (const char* other : {"Secret", "secret2", "s"})
    EXPECT_THAT(
        refusal(address, {.token = other}),
        AllOf(HasSubstr("refuses the job token of this rank"), HasSubstr("MEGATRON_JOB_TOKEN")));
}

/// Without the token no key can be read or written, and the others are served on.
TEST(RunStore, GivesNothingAwayWithoutTheToken) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  RunStore store = RunStore::host(std::move(socket), milliseconds(5'000), "secret");
  store.set("key", "value");
  const std::vector<std::function<void(StoreClient&)>> requests{
      [](StoreClient& client) { client.get("/key"); },
      [](StoreClient& client) { client.has({"/key"}); },
      [](StoreClient& client) { client.add("/n", 1); },
      [](StoreClient& client) { client.num_keys(); },
      [](StoreClient& client) { client.delete_key("/key"); },
      [](StoreClient& client) { client.compare_set("/key", "value", "other"); },
      [](StoreClient& client) {
        client.set("/key", "other");
        client.get("/key");
      }};
  for (const auto& request : requests) {
    const auto client = connect_to_store(address, {.has_tokens = false});
    EXPECT_THROW(request(*client), StoreLost);
  }
  EXPECT_EQ(store.find("key"), "value");
}

/// A stranger has one guess and little memory.
TEST(RunStore, DropsStrangers) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const RunStore store = RunStore::host(std::move(socket), milliseconds(5'000), "secret");
  const auto guesser = connect_to_store(address, {.has_tokens = false});
  EXPECT_EQ(guesser->compare_set(kTokenKey, "", "wrong"), "refused");
  EXPECT_THROW(guesser->compare_set(kTokenKey, "", "secret"), StoreLost);
  const auto flooder = connect_to_store(address, {.has_tokens = false});
  EXPECT_THROW(flooder->compare_set(kTokenKey, "", std::string(1 << 24, 'x')), StoreLost);
}

TEST(RunStore, RefusesATokenThatNobodyAsksFor) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const RunStore store = RunStore::host(std::move(socket), milliseconds(5'000));
  EXPECT_THAT(refusal(address, {.token = "secret"}), HasSubstr("asks for no job token"));
}

/// Rank 0's launcher starts late, and rank 0 serves the port later still. The limit for silence
/// starts when the port opens.
TEST(ReachStore, WaitsForAPortThatOpensLate) {
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
TEST(ReachStore, WaitsForAServiceThatClosesAtFirst) {
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

TEST(ReachStore, NamesTheOwnerOfTheAddress) {
  const ForeignService web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const StoreAddress agent{"127.0.0.1", web.address().port, "the launcher's agent"};
  EXPECT_THAT(refusal(agent, {}),
              HasSubstr("is another service, not the launcher's agent of this run"));
}

TEST(ReachStore, SpeaksOfAServiceThatIsSilent) {
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
