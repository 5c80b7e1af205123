// A connection to the run's store. Every call has a deadline, because a server whose process is
// suspended or whose network is cut neither answers nor closes the connection.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/descriptor.h"
#include "megatron/base/endpoint.h"
#include "megatron/base/suspend_aware_timer.h"

namespace megatron {

/// Thrown when the store's process has ended or the connection to it is broken.
class StoreLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StoreAddress {
  std::string host;
  std::int64_t port = 0;
  std::string owner = "rank 0";  ///< The process that listens there, for messages.
  std::string shown = {};        ///< The address in messages, if another one is meant.
  pid_t relay = 0;  ///< The launcher of this host if it passes the requests on, else 0.
  std::string text() const { return shown.empty() ? Endpoint{host, port}.text() : shown; }
};

/// A thread-safe client; concurrent calls run one after the other. After a failed call every later
/// call fails at once. All calls throw StoreLost.
class StoreClient {
 public:
  /// Takes ownership of the connected, non-blocking socket. `timeout` limits every call.
  StoreClient(int descriptor, StoreAddress address, std::chrono::milliseconds timeout);
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  /// Finds out within `limit` what the other side is. After `silent` the caller may retry.
  enum class HandshakeResult : std::uint8_t { store, foreign, closed, silent };
  HandshakeResult handshake(std::chrono::milliseconds limit);
  /// Returns the answer of a foreign service as printable text.
  const std::string& foreign_reply() const { return foreign_reply_; }

  /// Sends requests that have no answer, or whose answers who takes the connection over reads.
  void send(const std::string& requests);
  void set(const std::string& key, const std::string& value);
  /// Sets the key if its value is `expected` ("": not set). Returns the value after the call.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  /// Returns the value, or "" when the key is not set.
  std::string get(const std::string& key);
  /// Returns the values of all keys, as get() does, without waiting for each.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has(const std::vector<std::string>& keys);
  std::int64_t num_keys();
  bool delete_key(const std::string& key);

  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Sets the limit of every call, including a call under way.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// Returns the connected descriptor and gives up ownership of it. No call may follow.
  Descriptor release() { return std::move(descriptor_); }
  /// Returns this host's numeric address towards the server.
  std::string local_address() const { return local_endpoint(descriptor_.number()).host; }

 private:
  class Call;
  /// Returns the sentence that names the store's host and `reason`.
  std::string loss_text(const std::string& reason) const;
  std::string no_answer_text(std::chrono::milliseconds timeout) const;
  /// Marks the connection as lost. The caller holds its lock.
  [[noreturn]] void fail_connection(const std::string& text);
  void await_event(short event, SuspendAwareTimer& timer);
  void send_all(const std::string& bytes, SuspendAwareTimer& timer);
  void receive_all(void* data, std::size_t bytes, SuspendAwareTimer& timer);

  Descriptor descriptor_;
  const StoreAddress address_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::timed_mutex mutex_;   // guards the connection and all members below
  std::string lost_reason_;  ///< Why the connection is lost; empty while it works.
  std::string foreign_reply_;
  bool is_handshake_done_ = false;
};

}  // namespace megatron
