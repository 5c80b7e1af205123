// Two functions of one rank on two threads, of which only one runs at a time. Before a wait for
// other ranks, the running one yields, so that the wait overlaps with the other's computation. The
// switches depend on the work alone, never on time, so all ranks that do the same work make the
// same collective calls in the same order.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

class OverlappedPair {
 public:
  /// `device` is the device that the functions compute on.
  explicit OverlappedPair(c10::Device device = c10::kCPU) : device_(device) {}
  ~OverlappedPair();
  OverlappedPair(const OverlappedPair&) = delete;
  OverlappedPair& operator=(const OverlappedPair&) = delete;

  /// Runs both functions to their ends: `first` starts, on the calling thread; `second` runs on a
  /// thread that is kept for later pairs and inherits the caller's grad mode, intra-op threads and
  /// stream. When one throws, the other throws in its next yield(). After both have ended, rethrows
  /// the first exception.
  void run(const std::function<void()>& first, const std::function<void()>& second);
  /// Returns whether a pair is running.
  bool is_running() const;
  /// Lets the other function run until it yields or ends. Called by the running function. Does
  /// nothing when the other has ended or no pair runs. A call from any thread but that of `first`
  /// counts as `second`'s, since autograd may use several threads.
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
  const std::function<void()>* second_ = nullptr;  ///< Set until the thread begins it.
  std::exception_ptr failure_;
  int num_threads_ = 0;  ///< Number of intra-op threads set on thread_.
  std::thread thread_;
};

/// A process group whose calls overlap with the other half of an overlapped pair. A wait first
/// starts the call, then yields, and waits when it runs again. Results and the order of calls on
/// all ranks do not change. While no pair runs, calls go directly to the group.
class OverlappedComm final : public Comm {
 public:
  OverlappedComm(std::shared_ptr<Comm> comm, std::shared_ptr<OverlappedPair> pair)
      : comm_(std::move(comm)), pair_(std::move(pair)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }
  OverlappedPair& pair() const { return *pair_; }

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<OverlappedPair> pair_;
};

/// Wraps the groups of `axes`, over which the layers communicate, for one overlapped pair. Call it
/// before anything copies the axes (a model's parameters do). It does nothing on an axis of one
/// rank.
void enable_overlap(std::initializer_list<Axis*> axes, c10::Device device);
/// Returns the overlapped pair of the first of `axes` that has one, or null.
OverlappedPair* overlapped_pair_of(std::initializer_list<const Axis*> axes);

}  // namespace megatron
