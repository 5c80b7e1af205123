// How a rank waits for its peers: it spins briefly and then sleeps on a futex event. It gives up
// when a peer has failed or left, when the timeout has passed, or when the rank itself ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/cpu_instructions.h"
#include "megatron/base/suspend_aware_timer.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/shared_memory/futex_event.h"
#include "megatron/parallel/transport/call_header.h"

namespace megatron {

/// A group, and this rank's position in it.
struct GroupInfo {
  std::string name;                 ///< Name of the axis.
  std::vector<std::int64_t> ranks;  ///< World ranks, ascending.
  std::int64_t rank = 0;            ///< Rank in the group.
  std::int64_t size() const { return static_cast<std::int64_t>(ranks.size()); }
};

/// Returns a duration such as "60 s".
std::string time_text(std::chrono::milliseconds time);
/// Returns the text of the CommError for a call that differs from that of another member.
std::string mismatch_text(const CommCall& call, const GroupInfo& group_info, const CallHeader& mine,
                          std::int64_t member, const CallHeader& theirs);

class SpinWait {
 public:
  static constexpr int kMinSpins = 200, kMaxSpins = 5000, kMinShortSleeps = 8,
                       kMaxShortSleeps = 4096;
  SpinWait(GroupInfo group_info, std::shared_ptr<HostStatus> host_status,
           std::chrono::milliseconds timeout);

  /// Returns once predicate() holds. A peer makes it true and then notifies `event`. missing()
  /// returns the ranks of the group that are still awaited.
  template <class Predicate, class Missing>
  void wait(FutexEvent& event, const CommCall& call, const Predicate& predicate,
            const Missing& missing) const {
    const int spins = may_spin_ ? spins_.load(std::memory_order_relaxed) : 0;
    for (int turn = 0; turn < spins; ++turn) {
      if (predicate()) return record_spin(turn);
      cpu_pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    Watch watch(call);
    while (true) {
      const std::uint32_t seen = event.sequence();
      if (predicate()) break;
      event.wait(seen, std::chrono::milliseconds(20));
      if (predicate()) break;
      const std::string error = wait_error(watch, missing());
      if (!error.empty() && !predicate()) fail(call, error);
    }
    record_sleep(std::chrono::steady_clock::now() - begin);
  }
  [[noreturn]] void fail(const CommCall& call, const std::string& error) const;

  /// Makes every wait of this rank in this group fail.
  void cancel() { cancelled_ = true; }
  const GroupInfo& group_info() const { return group_info_; }

 private:
  /// A sleeping wait, and its entry in the wait table once it is long.
  struct Watch {
    explicit Watch(const CommCall& call) : call(call) {}
    const CommCall& call;
    SuspendAwareTimer timer = {};
    std::optional<WaitTable::Wait> shown = {};
    /// The time at which to decide again whether a wait past its timeout is to continue.
    std::optional<std::chrono::milliseconds> extended_to = {};
  };
  /// Returns why the wait must end, or "" while it can continue. `missing`: ranks of the group.
  std::string wait_error(Watch& watch, const std::vector<std::int64_t>& missing) const;
  std::int64_t world_rank(std::int64_t member) const {
    return group_info_.ranks[static_cast<std::size_t>(member)];
  }
  void record_spin(int turns) const;
  void record_sleep(std::chrono::steady_clock::duration time) const;

  GroupInfo group_info_;
  std::shared_ptr<HostStatus> host_status_;
  std::chrono::milliseconds timeout_;
  bool may_spin_;  ///< There are enough CPUs for every rank of the group.
  // Spins before sleeping. Many are used after enough consecutive sleeps so short that waking up
  // took most of the time. Few are used again as soon as many do not suffice, because a peer
  // computes or needs this very core. That doubles short_sleeps_needed_; success halves it.
  mutable std::atomic<int> spins_{kMinSpins}, short_sleeps_{0}, successful_spins_{0},
      short_sleeps_needed_{kMinShortSleeps};
  std::atomic<bool> cancelled_{false};
};

}  // namespace megatron
