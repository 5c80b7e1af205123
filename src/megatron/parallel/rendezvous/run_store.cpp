#include "megatron/parallel/rendezvous/run_store.h"

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace megatron {
namespace {

constexpr std::chrono::hours kLongWait{24};
constexpr std::chrono::seconds kHandshake{15};
constexpr std::chrono::milliseconds kLongestPause{50};

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// c10d's errors without their stack traces.
template <class Body>
auto guarded(const Body& body) {
  try {
    return body();
  } catch (const c10::DistError& error) {
    throw StoreLost(error.what_without_backtrace());
  }
}

}  // namespace

struct RunStore::Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

c10::intrusive_ptr<c10d::Store> RunStore::store() const { return connection_->store; }

RunStore RunStore::host(ListeningSocket socket, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(socket.port());
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.useLibUV = false;  // which does not take over an open socket
  options.masterListenFd = socket.release();
  return guarded([&] { return RunStore(std::make_shared<Connection>(Connection{c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options)})); });
}

RunStore RunStore::connect(const StoreAddress& address, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(address.port);
  options.waitWorkers = false;
  options.timeout = kHandshake;
  return guarded([&] {
    auto store = c10::make_intrusive<c10d::TCPStore>(address.host, options);
    store->setTimeout(timeout);
    return RunStore(std::make_shared<Connection>(Connection{std::move(store)}));
  });
}

RunStore RunStore::with_prefix(const std::string& prefix) const {
  return RunStore(std::make_shared<Connection>(Connection{c10::make_intrusive<c10d::PrefixStore>(prefix, connection_->store)}));
}

void RunStore::set(const std::string& key, const std::string& value) {
  guarded([&] { connection_->store->set(key, bytes_of(value)); });
}

void RunStore::set_all(const std::vector<std::string>& keys, const std::string& value) {
  guarded([&] { connection_->store->multiSet(keys, std::vector(keys.size(), bytes_of(value))); });
}

std::string RunStore::compare_set(const std::string& key, const std::string& expected, const std::string& value) {
  return guarded([&] { return text_of(connection_->store->compareSet(key, bytes_of(expected), bytes_of(value))); });
}

std::optional<std::string> RunStore::find(const std::string& key) {
  return guarded([&]() -> std::optional<std::string> {
    if (!connection_->store->check({key})) return std::nullopt;
    return text_of(connection_->store->get(key));
  });
}

std::vector<std::string> RunStore::get_all(const std::vector<std::string>& keys) {
  return guarded([&] {
    std::vector<std::string> values;
    for (const auto& bytes : connection_->store->multiGet(keys)) values.push_back(text_of(bytes));
    return values;
  });
}

std::int64_t RunStore::add(const std::string& key, std::int64_t amount) {
  return guarded([&] { return connection_->store->add(key, amount); });
}

void RunStore::wait(const std::string& key) {
  while (true) {
    try {
      return connection_->store->wait({key}, kLongWait);
    } catch (const c10::DistNetworkError& error) {
      throw StoreLost(error.what_without_backtrace());
    } catch (const c10::DistStoreError&) {
      continue;  // the time is over, not the waiting
    }
  }
}

bool RunStore::poll(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(pause * 2, kLongestPause)) {
    if (guarded([&] { return connection_->store->check({key}); })) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(pause, deadline - now));
  }
}

}  // namespace megatron
