// A connection to the run's store. Every call has a deadline: a server whose process is stopped, or
// whose network is cut, never answers and never closes the connection either.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/base/suspend_aware_timer.h"

namespace megatron {

/// The process that hosts the store has gone, or cannot be spoken to.
class StoreLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StoreAddress {
  std::string host;
  std::int64_t port = 0;
  std::string owner = "rank 0";  ///< whose process listens there, in words
  std::string text() const { return host + ":" + std::to_string(port); }
};

/// Any thread may call; calls wait for each other. After a call that failed, every later one fails
/// at once. All throw StoreLost.
class StoreClient {
 public:
  /// Owns the connected, non-blocking socket. `timeout` bounds every call.
  StoreClient(int descriptor, StoreAddress address, std::chrono::milliseconds timeout);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  /// What the other side is, found out within `limit`: `silent` may be asked again.
  enum class HandshakeResult : std::uint8_t { store, foreign, closed, silent };
  HandshakeResult handshake(std::chrono::milliseconds limit);
  /// What a foreign service has said, as printable text.
  const std::string& foreign_reply() const { return foreign_reply_; }

  void set(const std::string& key, const std::string& value);
  /// The value after the call: `value` if it was `expected` ("": not set) before.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  /// "" when the key is not set.
  std::string get(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has(const std::vector<std::string>& keys);
  std::int64_t num_keys();
  bool delete_key(const std::string& key);

  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Also for the call under way.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// The address of this host on the way to the server, in digits.
  std::string local_address() const;

 private:
  class Call;
  [[noreturn]] void fail_connection(const std::string& reason);
  void await_event(short event, SuspendAwareTimer& timer);
  void send_all(const std::string& bytes, SuspendAwareTimer& timer);
  void receive_all(void* data, std::size_t bytes, SuspendAwareTimer& timer);

  const int descriptor_;
  const StoreAddress address_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::timed_mutex mutex_;   // of the conversation and of all below
  std::string lost_reason_;  ///< why; empty while all is well
  std::string foreign_reply_;
  bool is_handshake_done_ = false;
};

}  // namespace megatron
