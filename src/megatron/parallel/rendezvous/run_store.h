// The key-value store through which the ranks of a run find each other, hosted by rank 0 or by
// torchrun's agent. A rank has one connection, which all its threads use; waits ask again and
// again, so that no thread holds it for long.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/listening_socket.h"
#include "megatron/parallel/rendezvous/store_client.h"

namespace c10d {
class Store;
}

namespace megatron {

class StoreServer;

/// Values are text. Every call throws StoreLost when the connection breaks, or when the server does
/// not answer within the timeout.
class RunStore {
 public:
  /// Hosts the store for as long as the object, or a copy, lives. `timeout` bounds every call.
  static RunStore host(ListeningSocket socket, std::chrono::milliseconds timeout);
  /// Of a client that connect_to_store() has found.
  explicit RunStore(std::shared_ptr<StoreClient> client);
  /// The same connection, with `prefix` before every key.
  RunStore with_prefix(const std::string& prefix) const;

  void set(const std::string& key, const std::string& value);
  void set_all(const std::vector<std::string>& keys, const std::string& value);
  /// Sets the key if its value is `expected` ("": not set); the value it has then.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  /// Nothing when the key is not set.
  std::optional<std::string> find(const std::string& key);
  /// All must be set.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has_all(const std::vector<std::string>& keys);
  /// Whether it was set.
  bool remove(const std::string& key);
  /// Whether the key was set within the time. It asks again after a tenth of the time waited so
  /// far, at most half a second.
  bool poll(const std::string& key, std::chrono::milliseconds timeout);

  /// Bounds every call on this connection from now on, also the one under way.
  void set_timeout(std::chrono::milliseconds timeout) { connection_->client->set_timeout(timeout); }
  /// The address of this host on the way to the store, in digits; a loopback address where the
  /// store is here.
  std::string local_address() const { return connection_->client->local_address(); }

  /// The same keys for LibTorch.
  c10::intrusive_ptr<c10d::Store> store() const;

 private:
  struct Connection {
    std::shared_ptr<StoreServer> server;  ///< null on the other ranks
    std::shared_ptr<StoreClient> client;
  };
  explicit RunStore(std::shared_ptr<Connection> connection, std::string prefix = "")
      : connection_(std::move(connection)), prefix_(std::move(prefix)) {}
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }

  std::shared_ptr<Connection> connection_;
  std::string prefix_;
};

}  // namespace megatron
