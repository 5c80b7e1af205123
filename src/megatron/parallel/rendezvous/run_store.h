// The key-value store through which the ranks of a run find each other: c10d's TCPStore, hosted by rank 0 or by the launcher's agent. One object is
// one connection, whose calls wait for each other: a thread that waits for long has its own.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/listening_socket.h"

namespace c10d {
class Store;
}

namespace megatron {

/// The process that hosts the store has gone, or cannot be spoken to.
class StoreLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StoreAddress {
  std::string host;
  std::int64_t port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};

/// Values are text. Every call throws StoreLost when the connection breaks.
class RunStore {
 public:
  /// Hosts the store for as long as the object lives. `timeout` bounds the calls of store()'s users.
  static RunStore host(ListeningSocket socket, std::chrono::milliseconds timeout);
  /// A client; the server must be reachable (await_store). StoreLost also when what answers there is no such store.
  static RunStore connect(const StoreAddress& address, std::chrono::milliseconds timeout);
  /// The same connection, with `prefix` before every key.
  RunStore with_prefix(const std::string& prefix) const;

  void set(const std::string& key, const std::string& value);
  void set_all(const std::vector<std::string>& keys, const std::string& value);
  /// Sets the key if its value is `expected` ("": not set); the value it has then.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& value);
  /// Nothing when the key is not set.
  std::optional<std::string> find(const std::string& key);
  /// All must be set.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  std::int64_t add(const std::string& key, std::int64_t amount);
  /// Returns when the key is set.
  void wait(const std::string& key);
  /// Whether the key was set within the time: asks again and again, so it is for one rank, or for moments.
  bool poll(const std::string& key, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> store() const;

 private:
  struct Connection;
  explicit RunStore(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  std::shared_ptr<Connection> connection_;
};

}  // namespace megatron
