#include "megatron/control/run_store.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "megatron/control/connect_to_store.h"
#include "megatron/control/store_client.h"
#include "megatron/control/store_protocol.h"
#include "megatron/control/store_service.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxPollInterval{500};
constexpr milliseconds kWatchConnectTimeout{1'000};
/// After the first polls a wait watches the key, and polls only to see whether the store still
/// answers.
constexpr milliseconds kFirstPolls{50}, kAskInterval{5'000};
/// A longer pause would count as a suspension of the process.
constexpr milliseconds kWatchSlice{500};

}  // namespace

RunStore::RunStore(std::shared_ptr<StoreClient> client, Connect connect_again)
    : connection_(std::make_shared<Connection>(
          Connection{nullptr, std::move(client), std::move(connect_again)})) {}

RunStore RunStore::host(ListeningSocket socket, milliseconds timeout, const std::string& token) {
  const StoreAddress address{socket.address(), socket.port()};
  auto server = std::make_shared<StoreServer>(std::move(socket), token);
  const Connect connect = [=](milliseconds limit) {
    return connect_to_store(address, {.timeout = limit, .token = token});
  };
  return RunStore(
      std::make_shared<Connection>(Connection{std::move(server), connect(timeout), connect}));
}

std::vector<std::string> RunStore::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(full(key));
  return names;
}

RunStore RunStore::with_prefix(const std::string& prefix) const {
  return RunStore(connection_, full(prefix));
}

void RunStore::set(const std::string& key, const std::string& value) {
  connection_->client->set(full(key), value);
}

void RunStore::set_all(const std::vector<std::string>& keys, const std::string& value) {
  for (const std::string& key : keys) set(key, value);
}

std::string RunStore::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& value) {
  return connection_->client->compare_set(full(key), expected, value);
}

bool RunStore::has_all(const std::vector<std::string>& keys) {
  return connection_->client->has(full(keys));
}

void RunStore::set_on_disconnect(const std::string& key, const std::string& text) {
  connection_->client->compare_set(kOnDisconnectKey, "", full(key) + "\n" + text);
}

void RunStore::clear_on_disconnect() { connection_->client->compare_set(kOnDisconnectKey, "", ""); }

bool RunStore::remove(const std::string& key) { return connection_->client->delete_key(full(key)); }

std::optional<std::string> RunStore::find(const std::string& key) {
  if (!has_all({key})) return std::nullopt;
  return connection_->client->get(full(key));
}

std::vector<std::string> RunStore::get_all(const std::vector<std::string>& keys) {
  return connection_->client->get_all(full(keys));
}

std::int64_t RunStore::add(const std::string& key, std::int64_t amount) {
  return connection_->client->add(full(key), amount);
}

std::unique_ptr<StoreWatch> RunStore::watch(const std::vector<std::string>& keys) const {
  if (!connection_->connect_again) return nullptr;
  try {
    return std::make_unique<StoreWatch>(*connection_->connect_again(kWatchConnectTimeout),
                                        full(keys));
  } catch (const std::exception&) {
    return nullptr;  // the calls of the store itself say what has become of it
  }
}

bool RunStore::poll(const std::string& key, milliseconds timeout) {
  SuspendAwareTimer timer, since_asked;
  std::unique_ptr<StoreWatch> watched;
  bool is_watch_tried = false;
  for (milliseconds waited{0};; waited = timer.elapsed()) {
    if (watched && watched->value(0)) return true;
    if (!watched || since_asked.elapsed() >= kAskInterval || waited >= timeout) {
      if (has_all({key})) return true;
      since_asked = SuspendAwareTimer();
    }
    if (waited >= timeout) return false;
    if (waited >= kFirstPolls && !std::exchange(is_watch_tried, true)) watched = watch({key});
    if (!watched) {
      std::this_thread::sleep_for(
          std::min(std::clamp(waited / 2, milliseconds(1), kMaxPollInterval), timeout - waited));
      continue;
    }
    try {
      watched->wait(std::min(kWatchSlice, timeout - waited));
    } catch (const StoreLost&) {
      watched.reset();  // the calls of the store itself say what has become of it
    }
  }
}

}  // namespace megatron
