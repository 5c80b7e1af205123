// What a store's server and an agent's relay share: a listening socket, its clients, and their
// requests, handled by whoever owns the object. It starts no thread and never blocks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "megatron/base/listening_socket.h"
#include "megatron/control/store_protocol.h"

namespace megatron {

/// One connection of a client.
struct StoreConnection {
  int descriptor = -1;
  std::uint64_t id = 0;  ///< Not used again, unlike the descriptor.
  std::string in, out;   ///< What has arrived, and what must still be sent.
  bool is_validated = false, has_token = false, is_refused = false;
  bool is_framed =
      false;  ///< It may watch keys; answers to it are frames. See StoreRequest::frames.
  std::set<std::string> watched;
  /// What is appended to a key when the connection ends; a relay has one for each of its clients.
  std::map<std::string, std::string> disconnect_texts;
};

/// Thread-compatible: one thread at a time may use it.
class StoreListener {
 public:
  /// Clients must send `token` first, unless it is empty.
  StoreListener(ListeningSocket socket, std::string token);
  virtual ~StoreListener();
  StoreListener(const StoreListener&) = delete;
  StoreListener& operator=(const StoreListener&) = delete;

  /// A descriptor that can be read when serve() has something to do.
  int descriptor() const { return events_; }
  /// Accepts connections, reads requests and sends answers, as far as that is possible now.
  void serve();

  std::int64_t port() const { return socket_.port(); }
  std::string address() const { return socket_.address(); }
  std::size_t num_clients() const { return clients_.size(); }
  /// Returns the address of this host towards its first client on another host, or "".
  std::string address_for_others() const;

 protected:
  /// Handles one request. Throws IncompleteRequest or ProtocolError.
  virtual void handle(StoreRequest request, RequestReader& reader, StoreConnection& client) = 0;
  /// The connection has ended.
  virtual void on_end(StoreConnection&) {}
  /// A descriptor of add_descriptor() is ready.
  virtual void on_ready(int) {}

  /// Makes serve() call on_ready() when `descriptor` can be read, or also written.
  void add_descriptor(int descriptor);
  void wait_for_writing(int descriptor, bool wanted);
  void remove_descriptor(int descriptor);
  /// Returns the client, or null if its connection has ended.
  StoreConnection* find_client(std::uint64_t id);
  /// Sends what is in `out`. The client ends in the next serve() if that fails.
  void flush(StoreConnection& client);
  void drop_all();
  /// Refuses connections from now on.
  void stop_accepting();

  /// Returns whether the request is `frames`, which it then grants.
  static bool takes_frames(StoreRequest request, StoreConnection& client) {
    client.is_framed = client.is_framed || request == StoreRequest::frames;
    return request == StoreRequest::frames;
  }
  /// Calls `action` with key and text of each disconnect text of the client.
  static void for_each_disconnect_text(
      const StoreConnection& client,
      const std::function<void(const std::string& key, const std::string& text)>& action);

  /// Keeps that a client wants to know the value of the key.
  void add_watcher(const std::string& key, const StoreConnection& client);
  void forget_watchers(const std::string& prefix);
  /// Sends the value of the key to its watchers; nullptr: it is not set.
  void publish(const std::string& key, const std::string* value);
  static void publish_to(StoreConnection& client, const std::string& key, const std::string* value);

 private:
  void accept_one();
  bool serve_client(StoreConnection& client);
  bool answer_all(StoreConnection& client);
  void answer(StoreRequest request, RequestReader& reader, StoreConnection& client);
  static bool accepts_unneeded_token(RequestReader& reader, StoreConnection& client);
  void serve_unauthenticated(StoreRequest request, RequestReader& reader, StoreConnection& client);
  void drop(int descriptor);
  void drop_slow_handshakes();

  ListeningSocket socket_;
  const std::string token_;
  int events_ = -1, retry_ = -1;  ///< an epoll set, and a timer after which accepting is retried
  std::uint64_t last_id_ = 0;
  std::set<int> writing_;                   ///< descriptors that are watched for writing too
  std::map<int, StoreConnection> clients_;  ///< by descriptor
  std::map<std::uint64_t, int> descriptors_;
  /// The ids of clients in the order of their connections, and the deadlines of their handshakes.
  std::deque<std::pair<std::uint64_t, std::chrono::steady_clock::time_point>> pending_;
  bool is_accepting_ = true;
  std::unordered_map<std::string, std::set<std::uint64_t>> watchers_;  ///< ids of clients by key
};

}  // namespace megatron
