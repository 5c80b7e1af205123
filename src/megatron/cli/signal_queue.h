// Signals as events that a poll() loop reads.
#pragma once

#include <csignal>
#include <optional>

namespace megatron {

/// Blocks signals and delivers them through a descriptor during its lifetime.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  int descriptor() const { return descriptor_; }
  /// Returns the next pending signal, or nullopt.
  std::optional<int> take();
  /// Returns the signal mask before construction, which the ranks use.
  const sigset_t& saved_mask() const { return saved_mask_; }

 private:
  int descriptor_ = -1;
  sigset_t saved_mask_;
};

}  // namespace megatron
