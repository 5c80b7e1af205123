// The store behind a relay answers as the store itself, and is asked less often.
#include "megatron/control/store_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/control/connect_to_store.h"
#include "megatron/control/run_store.h"
#include "megatron/control/store_client.h"
#include "megatron/control/store_service.h"
#include "megatron/control/store_watch.h"
#include "support/check_store.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// A relay in a thread of its own.
class RunningRelay {
 public:
  explicit RunningRelay(const StoreAddress& store, const std::string& token = "") {
    const auto upstream = connect_to_store(store, {.token = token});
    relay_ = std::make_unique<StoreRelay>(local_socket(), token, *upstream);
    address_ = {"127.0.0.1", relay_->port()};
    thread_ = std::thread([this] {
      pollfd event{relay_->descriptor(), POLLIN, 0};
      while (!ending_) {
        if (::poll(&event, 1, 20) > 0) relay_->serve();
      }
    });
  }
  ~RunningRelay() {
    ending_ = true;
    thread_.join();
  }
  const StoreAddress& address() const { return address_; }

 private:
  std::unique_ptr<StoreRelay> relay_;
  StoreAddress address_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

class Relay : public testing::Test {
 protected:
  void SetUp() override {
    ListeningSocket socket = local_socket();
    store_ = {"127.0.0.1", socket.port()};
    server_ = std::make_unique<StoreServer>(std::move(socket));
  }
  RunStore direct() const { return RunStore(connect_to_store(store_, {})); }
  static RunStore through(const RunningRelay& relay) {
    return RunStore(connect_to_store(relay.address(), {.timeout = milliseconds(20'000)}));
  }

  /// Follows two keys, of which one is set, until the store that it asks ends.
  void expect_news(const StoreAddress& address, const std::function<void()>& end_store) {
    const RunStore::Connect connect = [&](milliseconds timeout) {
      return connect_to_store(address, {.timeout = timeout});
    };
    RunStore other = direct();
    other.set("before", "1");
    const auto watch = RunStore(connect(milliseconds(20'000)), connect).watch({"before", "after"});
    ASSERT_NE(watch, nullptr);
    const auto becomes = [&](std::size_t key, const std::optional<std::string>& value) {
      for (SuspendAwareTimer timer; watch->value(key) != value;) {
        if (timer.elapsed() > std::chrono::seconds(20)) return false;
        watch->wait(milliseconds(100));
      }
      return true;
    };
    EXPECT_TRUE(becomes(0, "1"));
    EXPECT_EQ(watch->value(1), std::nullopt);
    other.set("after", "2");
    EXPECT_TRUE(becomes(1, "2"));
    EXPECT_EQ(other.add("after", 1), 3);
    EXPECT_TRUE(becomes(1, "3"));
    other.remove("before");
    EXPECT_TRUE(becomes(0, std::nullopt));
    end_store();
    EXPECT_THROW(becomes(0, "4"), StoreLost);
  }

  StoreAddress store_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(Relay, TellsChangesToThoseWhoWatch) {
  auto relay = std::make_unique<RunningRelay>(store_);
  expect_news(relay->address(), [&] { relay.reset(); });
}

TEST_F(Relay, TheStoreItselfTellsChanges) {
  expect_news(store_, [this] { server_.reset(); });
}

TEST_F(Relay, AnswersAsTheStore) {
  const RunningRelay relay(store_);
  RunStore one = through(relay), other = direct();
  EXPECT_EQ(one.find("a"), std::nullopt);
  one.set("a", "1");
  EXPECT_EQ(one.find("a"), "1");
  EXPECT_EQ(one.compare_set("a", "2", "3"), "1");
  EXPECT_EQ(one.compare_set("a", "1", "3"), "3");
  EXPECT_EQ(other.find("a"), "3");
  EXPECT_EQ(one.add("count", 2), 2);
  EXPECT_EQ(other.add("count", 3), 5);
  EXPECT_EQ(one.add("count", 0), 5);
  EXPECT_TRUE(one.has_all({"a", "count"}));
  EXPECT_FALSE(one.has_all({"a", "c"}));
  EXPECT_TRUE(one.remove("a"));
  EXPECT_FALSE(one.has_all({"a"}));
  const std::string large(3'000'000, 'x');
  one.set("large", large);
  EXPECT_EQ(one.find("large"), large);
}

TEST_F(Relay, TellsWhatOthersSet) {
  const RunningRelay relay(store_), another(store_);
  RunStore one = through(relay), two = through(another), three = direct();
  EXPECT_FALSE(one.poll("go", milliseconds(30)));
  two.set("go", "now");
  EXPECT_TRUE(one.poll("go", milliseconds(10'000)));
  EXPECT_EQ(one.find("go"), "now");
  three.set("go", "later");
  for (int i = 0; i < 1000 && one.find("go") != "later"; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(one.find("go"), "later");
  three.remove("go");
  for (int i = 0; i < 1000 && one.find("go").has_value(); ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(one.find("go"), std::nullopt);
}

/// A client sees what it has written, also while what the store has told before is on its way.
TEST_F(Relay, ClientsSeeWhatTheyHaveWritten) {
  const RunningRelay relay(store_);
  std::vector<std::thread> threads;
  for (int client = 0; client < 4; ++client) {
    threads.emplace_back([&, client] {
      RunStore store = through(relay);
      for (int i = 0; i < 300; ++i) {
        const std::string key = "key " + std::to_string(client) + " " + std::to_string(i % 3);
        const std::string value = std::to_string(i);
        ASSERT_EQ(store.has_all({key}), i >= 3);
        store.set(key, value);
        ASSERT_TRUE(store.has_all({key}));
        ASSERT_EQ(store.find(key), value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Relay, ManyClientsCountTogether) {
  const RunningRelay relay(store_), another(store_);
  std::vector<std::thread> threads;
  for (int client = 0; client < 8; ++client) {
    threads.emplace_back([&, client] {
      RunStore store = through(client % 2 == 0 ? relay : another);
      for (int i = 0; i < 200; ++i) store.add("sum", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(direct().add("sum", 0), 1600);
}

TEST_F(Relay, WritesDisconnectTexts) {
  auto relay = std::make_unique<RunningRelay>(store_);
  RunStore watcher = direct();
  {
    RunStore dies = through(*relay), leaves = through(*relay);
    dies.set_on_disconnect("lost", "1 ");
    leaves.set_on_disconnect("lost", "2 ");
    leaves.clear_on_disconnect();
  }
  EXPECT_TRUE(watcher.poll("lost", milliseconds(10'000)));
  EXPECT_EQ(watcher.find("lost"), "1 ");
  RunStore stays = through(*relay), stays_too = through(*relay);
  stays.set_on_disconnect("lost", "3 ");
  stays_too.set_on_disconnect("lost", "4 ");
  stays.add("both are set", 1);
  relay.reset();  // the whole host
  for (int i = 0; i < 1000 && watcher.find("lost")->size() < 6; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_THAT(*watcher.find("lost"), testing::AnyOf("1 3 4 ", "1 4 3 "));
}

TEST_F(Relay, EndsItsClientsWhenTheStoreIsLost) {
  const RunningRelay relay(store_);
  RunStore one = through(relay);
  one.set("a", "1");
  server_.reset();
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) {
          one.add("a", 1);
          std::this_thread::sleep_for(milliseconds(10));
        }
      },
      StoreLost);
}

TEST_F(Relay, AsksForTheToken) {
  ListeningSocket socket = local_socket();
  const StoreAddress store{"127.0.0.1", socket.port()};
  const StoreServer server(std::move(socket), "secret");
  const RunningRelay relay(store, "secret");
  EXPECT_THROW(connect_to_store(relay.address(), {.token = "wrong"}), std::exception);
  RunStore(connect_to_store(relay.address(), {.token = "secret"})).set("a", "1");
}

}  // namespace
}  // namespace megatron
