// Watches one rank in a thread of its own. It warns when a peer does not arrive, long before the
// timeout ends the run; ends the run when the rank passes a deadline of its own; writes what the
// rank was doing on SIGUSR2 and when the run fails (rank_dump.h); and answers peers that ask for
// the rank's stack.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/failure/call_history.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/failure/rank_dump.h"

namespace megatron {

struct HangWatchOptions {
  std::int64_t rank = 0, world_size = 1;  ///< of the world
  std::string start = {};                 ///< identity of this start of the run, equal on all ranks
  std::filesystem::path folder = {};      ///< of the dumps; empty: none are written
  std::chrono::milliseconds warn_after{10'000};  ///< length of a wait; 0: never
  std::chrono::milliseconds timeout{600'000};    ///< at which a wait ends the run
  /// Set where calls run on a GPU, so that no wait of the host shows them: marks in the history
  /// those that are complete by now, and returns the oldest one that the device waits for.
  std::function<std::optional<DeviceCall>()> poll_device_calls = {};
  /// Receives warnings, whole lines without a line feed. Null: stderr.
  std::function<void(const std::string& line)> print = {};
};

class HangWatch {
 public:
  /// Handles SIGUSR2 from now on, in the whole process.
  HangWatch(std::shared_ptr<HostStatus> host_status, HangWatchOptions options);
  /// Also writes the dump of a failure that the thread has not seen yet.
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  /// See Communicators::set_deadline().
  void set_deadline(const Deadline& deadline);

 private:
  void watch() noexcept;
  void poll();
  void sample_progress();
  void warn_about_waits();
  /// Also ends the run when a call on a device has taken longer than the timeout.
  void check_device_calls();
  /// Begins to look for the cause when the rank has passed its deadline.
  void check_deadline();
  /// Ends the run unless the rank has met its deadline in the meantime, or the wait should
  /// continue. It may ask other hosts, which takes seconds.
  void judge(const Deadline& deadline, std::uint64_t number);
  /// Names the ranks that this one has waited for, else where it is itself. Returns "" when the
  /// wait should continue.
  std::string cause_of_delay(std::chrono::milliseconds limit);
  std::string cause_on_device(std::chrono::milliseconds limit);
  std::string own_place() const;
  /// A call that is not complete.
  struct LateCall {
    std::string call;
    std::vector<std::int64_t> missing;     ///< ranks of this host that are waited for
    std::vector<std::int64_t> group = {};  ///< all ranks of the group; empty if it is not known
    std::chrono::milliseconds age{0};
  };
  std::optional<LateCall> late_device_call(std::chrono::milliseconds least);
  void end_device_call(const LateCall& late);
  void warn(const LateCall& late);
  void dump_after_signal();
  void dump_after_failure();
  void write_dumps(const std::string& reason);
  RankDump dump_of(std::int64_t rank, const std::string& reason) const;

  const std::shared_ptr<HostStatus> host_status_;
  const HangWatchOptions options_;
  std::chrono::milliseconds next_warning_;
  std::uint64_t num_signals_;  ///< that were handled
  std::string last_error_;     ///< of poll(), which is printed once
  std::string last_progress_;  ///< what changes while the rank makes progress
  bool has_dumped_failure_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  // Guarded by mutex_.
  Deadline deadline_;
  std::uint64_t deadline_number_ = 0;                 ///< counts the deadlines
  std::chrono::milliseconds next_deadline_check_{0};  ///< on the timer
  SuspendAwareTimer deadline_timer_;
  bool is_judging_ = false;
  std::thread judge_;
  std::thread thread_;
};

/// Returns the ranks of this host that `rank` waits for in its call: they have not made their part
/// of it.
std::vector<std::int64_t> late_ranks(HostStatus& host_status, std::int64_t rank,
                                     const CallRecord& call, const CallGroup& group);

}  // namespace megatron
