// How a rank waits for its peers: spin a little, sleep on a futex event, and give up when a peer
// has failed or left, when the timeout has passed, or when this rank itself is ending.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/shared_memory/futex_event.h"
#include "megatron/parallel/transport/call_header.h"

namespace megatron {

/// A group as one of its ranks sees it.
struct GroupInfo {
  std::string name;                 ///< of the axis
  std::vector<std::int64_t> ranks;  ///< of the world, ascending
  std::int64_t rank = 0;            ///< in the group
  std::int64_t size() const { return static_cast<std::int64_t>(ranks.size()); }
};

/// "rank 3", "ranks 2, 5".
std::string name_ranks(const std::vector<std::int64_t>& ranks);
/// "60 s".
std::string time_text(std::chrono::milliseconds time);
/// The text of the CommError when this rank's call and a member's differ.
std::string mismatch_text(const CommCall& call, const GroupInfo& group_info, const CallHeader& mine,
                          std::int64_t member, const CallHeader& theirs);

class SpinWait {
 public:
  static constexpr int kMinSpins = 200, kMaxSpins = 5000, kMinShortSleeps = 8,
                       kMaxShortSleeps = 4096;
  SpinWait(GroupInfo group_info, std::shared_ptr<HostStatus> host_status,
           std::chrono::milliseconds timeout);

  /// Returns once predicate() holds, which some peer makes true and then notifies `event`.
  /// missing() lists the ranks (in the group) still waited for.
  template <class Predicate, class Missing>
  void wait(FutexEvent& event, const CommCall& call, const Predicate& predicate,
            const Missing& missing) const {
    const int spins = may_spin_ ? spins_.load(std::memory_order_relaxed) : 0;
    for (int turn = 0; turn < spins; ++turn) {
      if (predicate()) return record_spin(turn);
      __builtin_ia32_pause();
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

  /// Every wait of this rank in this group ends with `reason`.
  void cancel() { cancelled_ = true; }
  const GroupInfo& group_info() const { return group_info_; }

 private:
  /// A wait that sleeps, and what the neighbours see of it once it is long.
  struct Watch {
    explicit Watch(const CommCall& call) : call(call) {}
    const CommCall& call;
    SuspendAwareTimer timer = {};
    std::optional<WaitTable::Wait> shown = {};
  };
  /// Why the wait cannot go on; empty while it can. `missing` in the group.
  std::string wait_error(Watch& watch, const std::vector<std::int64_t>& missing) const;
  std::int64_t world_rank(std::int64_t member) const {
    return group_info_.ranks[static_cast<std::size_t>(member)];
  }
  void record_spin(int turns) const;
  void record_sleep(std::chrono::steady_clock::duration time) const;

  GroupInfo group_info_;
  std::shared_ptr<HostStatus> host_status_;
  std::chrono::milliseconds timeout_;
  bool may_spin_;  ///< every rank of the group can have a core
  // Turns to spin before sleeping: many once enough sleeps in a row were so short that waking up
  // was most of them, few again as soon as many do not suffice (a peer computes, or waits for this
  // very core). That doubles short_sleeps_needed_ for the next try; success halves it.
  mutable std::atomic<int> spins_{kMinSpins}, short_sleeps_{0}, successful_spins_{0},
      short_sleeps_needed_{kMinShortSleeps};
  std::atomic<bool> cancelled_{false};
};

}  // namespace megatron
