// Two pieces of work of one rank that take turns, each on a thread of its own, of which only one
// runs at a time. Whoever is about to wait for other ranks hands the turn over, so that the wait
// passes under the other's computation. When turns change depends on the work alone, never on time:
// all ranks that do the same work meet the same collectives in the same order.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace megatron {

class OverlappedPair {
 public:
  /// `device`: what the work computes on.
  explicit OverlappedPair(c10::Device device = c10::kCPU) : device_(device) {}
  ~OverlappedPair();
  OverlappedPair(const OverlappedPair&) = delete;
  OverlappedPair& operator=(const OverlappedPair&) = delete;

  /// Runs both to their ends: `first`, which has the first turn, on the calling thread, `second` on
  /// a thread that is kept for the next pair and computes as the caller does (grad mode, intra-op
  /// threads, stream). When one throws, the other does in its next yield; what was thrown first is
  /// thrown again here, after both have ended.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  /// A pair is running.
  bool is_running() const;
  /// By the one whose turn it is: lets the other go on until it hands over or ends. Nothing when it
  /// has ended, or no pair runs. Calls from any thread but `first`'s (autograd may use several)
  /// count as `second`'s.
  void yield();

 private:
  enum Side : std::uint8_t { kFirst, kSecond };

  void begin(const std::function<void()>& second);
  void run_second_thread();
  void run_side(Side side, const std::function<void()>& body);
  std::function<void()> with_caller_state(const std::function<void()>& body);

  const c10::Device device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_running_ = false, is_ending_ = false;
  Side active_ = kFirst;
  std::array<bool, 2> has_ended_{};
  std::thread::id first_thread_;
  const std::function<void()>* second_ = nullptr;  ///< not begun yet
  std::exception_ptr failure_;
  int num_threads_ = 0;  ///< intra-op, as told to thread_
  std::thread thread_;
};

}  // namespace megatron
