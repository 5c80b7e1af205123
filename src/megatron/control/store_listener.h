// What a store's server and an agent's relay share: a listening socket, its clients, and their
// requests, handled by whoever owns the object. It starts no thread and never blocks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "megatron/base/listening_socket.h"
#include "megatron/control/store_protocol.h"

namespace megatron {

/// One connection of a client.
struct StoreConnection {
  int descriptor = -1;
  std::uint64_t id = 0;  ///< Not used again, unlike the descriptor.
  std::string in, out;   ///< What has arrived, and what must still be sent.
  bool is_validated = false, has_token = false, is_refused = false;
  bool is_relay = false;  ///< It speaks for many clients; answers to it are frames.
  /// What is appended to a key when the connection ends; a relay has one for each of its clients.
  std::map<std::string, std::string> last_wills;
};

/// Thread-compatible: one thread at a time may use it.
class StoreListener {
 public:
  /// Clients must show `token` first, unless it is empty.
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
  /// Handles one request. Throws IncompleteRequest or ForeignRequest.
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

 private:
  void accept_one();
  bool serve_client(StoreConnection& client);
  bool answer_all(StoreConnection& client);
  void serve_stranger(StoreRequest request, RequestReader& reader, StoreConnection& client);
  void drop(int descriptor);

  ListeningSocket socket_;
  const std::string token_;
  int events_ = -1, retry_ = -1;  ///< an epoll set, and a timer after which accepting is retried
  std::uint64_t last_id_ = 0;
  std::map<int, StoreConnection> clients_;  ///< by descriptor
  std::map<std::uint64_t, int> descriptors_;
};

}  // namespace megatron
