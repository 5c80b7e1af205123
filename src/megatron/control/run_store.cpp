#include "megatron/control/run_store.h"

#include <algorithm>
#include <thread>

#include "megatron/control/connect_to_store.h"
#include "megatron/control/store_protocol.h"
#include "megatron/control/store_server.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxPollInterval{500};

}  // namespace

RunStore::RunStore(std::shared_ptr<StoreClient> client)
    : connection_(std::make_shared<Connection>(Connection{nullptr, std::move(client)})) {}

RunStore RunStore::host(ListeningSocket socket, milliseconds timeout, const std::string& token) {
  const StoreAddress address{socket.address(), socket.port()};
  auto server = std::make_shared<StoreServer>(std::move(socket), token);
  return RunStore(std::make_shared<Connection>(Connection{
      std::move(server), connect_to_store(address, {.timeout = timeout, .token = token})}));
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
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(full(key));
  return connection_->client->has(names);
}

void RunStore::set_last_will(const std::string& key, const std::string& text) {
  connection_->client->compare_set(kLastWillKey, "", full(key) + "\n" + text);
}

void RunStore::withdraw_last_will() { connection_->client->compare_set(kLastWillKey, "", ""); }

bool RunStore::remove(const std::string& key) { return connection_->client->delete_key(full(key)); }

std::optional<std::string> RunStore::find(const std::string& key) {
  if (!has_all({key})) return std::nullopt;
  return connection_->client->get(full(key));
}

std::vector<std::string> RunStore::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(connection_->client->get(full(key)));
  return values;
}

std::int64_t RunStore::add(const std::string& key, std::int64_t amount) {
  return connection_->client->add(full(key), amount);
}

bool RunStore::poll(const std::string& key, milliseconds timeout) {
  SuspendAwareTimer timer;
  for (milliseconds waited{0};; waited = timer.elapsed()) {
    if (has_all({key})) return true;
    if (waited >= timeout) return false;
    std::this_thread::sleep_for(
        std::min(std::clamp(waited / 10, milliseconds(1), kMaxPollInterval), timeout - waited));
  }
}

}  // namespace megatron
