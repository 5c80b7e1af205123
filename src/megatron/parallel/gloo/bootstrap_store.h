// The c10d store as processes use it to exchange short texts while they make groups. Waits poll, so
// that a failure elsewhere ends them and other threads can use the store meanwhile.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace megatron {

class BootstrapStore {
 public:
  BootstrapStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix,
                 std::chrono::milliseconds timeout);
  ~BootstrapStore();

  void set(const std::string& key, const std::string& text) const;
  bool has(const std::string& key) const;
  std::string get(const std::string& key) const;
  /// Sets the key unless it is set. Returns whether this call has set it.
  bool set_if_absent(const std::string& key, const std::string& text) const;
  /// Sets the limit of every later call.
  void set_timeout(std::chrono::milliseconds timeout) const;
  /// Adds `amount` to the number under `key` and returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount) const;

  /// Returns the texts under `key`/<rank> for each of the ranks. Throws CommError, which names
  /// `what` and the missing ranks, after the timeout or once find_failure() returns a text.
  std::vector<std::string> wait_for(const std::string& key, const std::vector<std::int64_t>& ranks,
                                    const std::string& what,
                                    const std::function<std::string()>& find_failure) const;

  /// Returns a store with a key space of its own, for a library that writes its own keys.
  c10::intrusive_ptr<c10d::Store> prefix_store(const std::string& name) const;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

/// Returns the boot identity of this machine. It is equal in all containers and changes at boot.
std::string boot_identity();

}  // namespace megatron
