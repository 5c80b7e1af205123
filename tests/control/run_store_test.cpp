// The run's store: its calls, their deadlines, disconnect texts and the job token.
#include "megatron/control/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "megatron/control/connect_to_store.h"
#include "megatron/control/store_protocol.h"
#include "megatron/control/store_service.h"
#include "support/check_store.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const StoreAddress& address, const StoreConnectOptions& options) {
  return message_of([&] { connect_to_store(address, options); });
}

TEST(RunStore, Answers) { check_calls(RunStore::host(local_socket(), milliseconds(10'000))); }

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

/// A rank that is forked while a client is connected has a copy of its connection.
TEST(RunStore, EndsAConnectionThatAForkedProcessHas) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  StoreService service(std::move(socket), "");
  auto joining = std::async(std::launch::async, [&] { return connect_to_store(address, {}); });
  while (joining.wait_for(milliseconds(1)) != std::future_status::ready) service.serve();
  const auto client = joining.get();
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::sleep(30);
    ::_exit(0);
  }
  const Descriptor connection = client->release();
  const int descriptor = connection.number();
  const std::string wrong = request_of(StoreRequest::wait);
  ::send(descriptor, wrong.data(), wrong.size(), MSG_NOSIGNAL);
  pollfd event{descriptor, POLLIN, 0};
  for (int i = 0; i < 1000 && ::poll(&event, 1, 5) == 0; ++i) service.serve();
  char byte = 0;
  EXPECT_EQ(::recv(descriptor, &byte, 1, MSG_DONTWAIT), 0) << "the client is told";
  EXPECT_EQ(service.num_clients(), 0U);
  pollfd all{service.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&all, 1, 0), 0) << "nothing is ready for ever";
  ::kill(rank, SIGKILL);
  ::waitpid(rank, nullptr, 0);
}

TEST(RunStore, CountsFromZeroWhereNoNumberIs) {
  RunStore store = RunStore::host(local_socket(), milliseconds(5'000));
  for (const char* text : {"text", "1x", "99999999999999999999", ""}) {
    store.set("n", text);
    EXPECT_EQ(store.add("n", 3), 3) << text;
  }
  store.set("n", std::to_string(INT64_MAX));
  EXPECT_EQ(store.add("n", 1), INT64_MAX);
}

TEST(RunStore, WritesTheDisconnectTextOfALostConnection) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  RunStore store = RunStore::host(std::move(socket), milliseconds(5'000)).with_prefix("run");
  {
    RunStore lost = RunStore(connect_to_store(address, {})).with_prefix("run");
    lost.set_on_disconnect("lost", "earlier ");
    lost.set_on_disconnect("lost", "5 ");
    RunStore polite = RunStore(connect_to_store(address, {})).with_prefix("run");
    polite.set_on_disconnect("lost", "6 ");
    polite.clear_on_disconnect();
    EXPECT_EQ(store.find("lost"), std::nullopt);
  }
  EXPECT_TRUE(store.poll("lost", milliseconds(5'000)));
  {
    RunStore other = RunStore(connect_to_store(address, {})).with_prefix("run");
    other.set_on_disconnect("lost", "7 ");
  }
  for (int i = 0; i < 500 && store.find("lost") != "5 7 "; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(store.find("lost"), "5 7 ");
}

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

/// A client without the token has one attempt and a small buffer.
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

/// Several runs' clients may try a port. What one shows must not become the answer to the next.
TEST(RunStore, KeepsNoTokenThatNobodyAsksFor) {
  ListeningSocket socket = local_socket();
  const StoreAddress address{"127.0.0.1", socket.port()};
  const RunStore store = RunStore::host(std::move(socket), milliseconds(5'000));
  for (const char* token : {"one", "other"})
    EXPECT_THAT(refusal(address, {.token = token}), HasSubstr("asks for no job token"));
  EXPECT_EQ(connect_to_store(address, {})->num_keys(), 0);
}

}  // namespace
}  // namespace megatron
