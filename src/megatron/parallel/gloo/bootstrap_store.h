// Words that processes leave for each other in a c10d store while groups are made. Waits are polls,
// so that a failure elsewhere ends them and other threads may use the store meanwhile.
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
  /// Sets the key unless it is set; whether this call has set it.
  bool set_if_absent(const std::string& key, const std::string& text) const;
  /// Bounds every call from now on.
  void set_timeout(std::chrono::milliseconds timeout) const;
  /// The new value.
  std::int64_t add(const std::string& key, std::int64_t amount) const;

  /// The texts under `key`/<rank> of each of the ranks. Throws CommError, naming `what` and the
  /// ranks that are missing, after the timeout or once find_failure() returns a text.
  std::vector<std::string> wait_for(const std::string& key, const std::vector<std::int64_t>& ranks,
                                    const std::string& what,
                                    const std::function<std::string()>& find_failure) const;

  /// A store of keys of its own, for a library that fills it.
  c10::intrusive_ptr<c10d::Store> prefix_store(const std::string& name) const;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

/// "boot identity" of this machine: equal in all its containers, different after a restart.
std::string boot_identity();

}  // namespace megatron
