// The key-value store that connects the ranks of a run, hosted by rank 0 or by torchrun's agent. A
// rank has one connection for all its threads. A wait polls at first and then watches the key over
// a connection of its own; wait_for_ranks.h also ends it when a rank fails elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/listening_socket.h"
#include "megatron/control/store_client.h"
#include "megatron/control/store_watch.h"

namespace megatron {

class StoreServer;

/// A handle to a map of text values; copies share the connection. Thread-safe. Every call throws
/// StoreLost when the connection breaks or when the server does not answer within the timeout.
class RunStore {
 public:
  /// Hosts the store while the object or a copy of it lives. `timeout` limits every call.
  /// Clients must show `token`, unless it is empty.
  static RunStore host(ListeningSocket socket, std::chrono::milliseconds timeout,
                       const std::string& token = "");
  /// Uses a client from connect_to_store().
  using Connect = std::function<std::shared_ptr<StoreClient>(std::chrono::milliseconds timeout)>;
  /// `connect_again`, if given, makes further connections, on which this program's store can be
  /// watched.
  explicit RunStore(std::shared_ptr<StoreClient> client, Connect connect_again = nullptr);
  /// Returns a store on the same connection that puts `prefix` before every key.
  RunStore with_prefix(const std::string& prefix) const;

  void set(const std::string& key, const std::string& value);
  void set_all(const std::vector<std::string>& keys, const std::string& value);
  /// Sets the key if its value is `expected` ("": not set). Returns the value after the call.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  /// Returns the value, or nothing when the key is not set.
  std::optional<std::string> find(const std::string& key);
  /// Returns the values of all keys, which must be set.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has_all(const std::vector<std::string>& keys);
  /// Makes the store append `text` to the key if this connection ends before clear_on_disconnect():
  /// the process dies, its host goes down or the network is cut. Only this program's store does so.
  void set_on_disconnect(const std::string& key, const std::string& text);
  void clear_on_disconnect();
  /// Removes the key and returns whether it was set.
  bool remove(const std::string& key);
  /// Follows the keys over a connection of its own. Returns null if the store is not one of this
  /// program's, or does not answer.
  std::unique_ptr<StoreWatch> watch(const std::vector<std::string>& keys) const;
  /// Returns whether the key is set within `timeout`. A longer wait watches the key. With another
  /// store than this program's it polls, at intervals of at most half a second.
  bool poll(const std::string& key, std::chrono::milliseconds timeout);

  /// Returns the number of keys of the server, with any prefix.
  std::int64_t num_keys() { return connection_->client->num_keys(); }

  std::chrono::milliseconds timeout() const { return connection_->client->timeout(); }
  /// Sets the limit of every call on this connection, including a call under way.
  void set_timeout(std::chrono::milliseconds timeout) { connection_->client->set_timeout(timeout); }
  /// Returns this host's numeric address towards the store; a loopback address when the store is on
  /// this host.
  std::string local_address() const { return connection_->client->local_address(); }

 private:
  struct Connection {
    std::shared_ptr<StoreServer> server;  ///< Null on ranks that do not host the store.
    std::shared_ptr<StoreClient> client;
    Connect connect_again;  ///< null if the store cannot be watched
  };
  explicit RunStore(std::shared_ptr<Connection> connection, std::string prefix = "")
      : connection_(std::move(connection)), prefix_(std::move(prefix)) {}
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> full(const std::vector<std::string>& keys) const;

  std::shared_ptr<Connection> connection_;
  std::string prefix_;
};

}  // namespace megatron
