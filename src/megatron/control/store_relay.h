// The store as the ranks of one host see it: their agent's relay forwards their requests to the
// run's store over one connection. It answers by itself whether a key is set, because it watches
// every key that a rank has asked for: a thousand polling ranks cost the store nothing.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/control/store_listener.h"

namespace megatron {

class StoreClient;

class StoreRelay final : public StoreListener {
 public:
  /// `upstream` is a client from connect_to_store(), whose connection the relay takes over.
  StoreRelay(ListeningSocket socket, std::string token, StoreClient& upstream);

  /// Calls for the process that owns the relay. They do not wait for the store.
  void compare_set(const std::string& key, const std::string& expected, const std::string& value);
  void append(const std::string& key, const std::string& text);
  /// Makes the store append `text` to the key when the connection of this relay ends.
  void set_on_disconnect(const std::string& key, const std::string& text);
  /// Makes value() follow the key.
  void watch(const std::string& key);
  /// Returns the last value that the store has sent for a watched key.
  std::optional<std::string> value(const std::string& key) const;
  /// Forgets the keys that begin with `prefix`, which the store has removed.
  void forget_prefix(const std::string& prefix);

  /// Returns why the connection to the store has ended, or "".
  const std::string& lost_reason() const { return lost_reason_; }
  /// Sends a heartbeat, unless the last one was less than `interval` ago: it counts up the key and
  /// expects an answer of the store.
  void send_heartbeat(const std::string& key, std::chrono::milliseconds interval);
  /// Returns for how long the store has not answered although it should. Time in which this process
  /// was suspended does not count.
  std::chrono::milliseconds silence() const;
  /// Returns the numeric address of this host towards the store.
  const std::string& own_address() const { return own_address_; }

 private:
  /// What is known about a watched key: nothing while an answer to `watch` is awaited.
  struct Watched {
    int awaited = 0;
    std::optional<std::string> value;
    bool is_known() const { return awaited == 0; }
  };
  /// Who awaits the next answer of the store: a client, a watched key, or both.
  struct Awaited {
    std::uint64_t client_id = 0;
    std::string key;
  };

  void handle(StoreRequest request, RequestReader& reader, StoreConnection& client) override;
  void on_end(StoreConnection& client) override;
  void on_ready(int descriptor) override;

  void add_watch(const std::string& key, StoreConnection& client);
  void check(RequestReader& reader, StoreConnection& client);
  void forward(const std::string& request) { forward(request, std::nullopt); }
  void forward(const std::string& request, const std::optional<Awaited>& awaited);
  void ask_for(const std::string& key, Watched& watched, std::uint64_t client_id = 0);
  void keep_disconnect_text(const std::string& entry, StoreConnection& client);
  void send_upstream();
  void read_upstream();
  void take_frame(RequestReader& reader);
  void take_answer(const std::string& answer);
  void lose(const std::string& reason);

  std::string own_address_, lost_reason_;
  Descriptor upstream_;
  std::string in_, out_;
  std::deque<Awaited> awaited_;  ///< In the order of the requests.
  std::unordered_map<std::string, Watched> watched_;
  std::optional<SuspendAwareTimer> since_asked_;  ///< since the last heartbeat
  mutable SuspendAwareTimer since_heard_;         ///< since the last answer, or the first request
};

}  // namespace megatron
