// The run's store: a map of texts behind a socket. It speaks the protocol of c10d's TCPStore, whose
// own server resolves the name of every client that connects; that takes seconds per client when
// the resolver does not answer. Agents of other hosts connect as relays: they watch keys for the
// ranks of their hosts, so that no rank polls the store.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "megatron/base/stop_event.h"
#include "megatron/control/store_listener.h"

namespace megatron {

class StoreService final : public StoreListener {
 public:
  using StoreListener::StoreListener;

  /// The calls of clients, for the process that hosts the store.
  std::optional<std::string> find(const std::string& key) const;
  /// Returns the text of the key, valid until the next call, or null.
  const std::string* value_of(const std::string& key) const;
  void set(const std::string& key, std::string value);
  /// Sets the key if its value is `expected` ("": not set). Returns the value after the call.
  std::string compare_set(const std::string& key, const std::string& expected, std::string value);
  void append(const std::string& key, const std::string& text);
  /// Removes the key, and returns its text, or "". Watchers are not notified.
  std::string take(const std::string& key);
  /// Removes every key that begins with `prefix`, and forgets who watches it.
  void remove_prefix(const std::string& prefix);

 private:
  void handle(StoreRequest request, RequestReader& reader, StoreConnection& client) override;
  void on_end(StoreConnection& client) override;

  void answer(StoreRequest request, RequestReader& reader, std::string& out);
  /// A text that is not a number counts as 0, and a sum has 64 bits.
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has_all(RequestReader& reader) const;
  bool remove(const std::string& key);
  /// Keeps or removes a disconnect text if the request is one, and returns whether it is.
  bool takes_disconnect_text(RequestReader& reader, StoreConnection& client);
  /// Sends the value of the key to its watchers.
  void publish_key(const std::string& key) { publish(key, value_of(key)); }

  std::unordered_map<std::string, std::string> texts_;
};

/// The run's store behind a thread of its own, for rank 0 where no launcher hosts it.
class StoreServer {
 public:
  /// Serves until the object is destroyed. Clients must send `token` first, unless it is empty.
  explicit StoreServer(ListeningSocket socket, std::string token = "");
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

 private:
  StoreService service_;
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace megatron
