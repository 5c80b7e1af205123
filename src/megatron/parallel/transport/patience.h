// How a rank waits for its peers: spin a little, sleep on a doorbell, and give up when a peer has failed or left, when the timeout has passed, or
// when this rank itself is ending.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/awake_timer.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/transport/call_header.h"
#include "megatron/parallel/transport/doorbell.h"
#include "megatron/parallel/transport/rank_board.h"

namespace megatron {

/// A group as one of its ranks sees it.
struct GroupPlace {
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
std::string disagreement(const CommCall& call, const GroupPlace& place, const CallHeader& mine, std::int64_t member, const CallHeader& theirs);

class Patience {
 public:
  static constexpr int kFewSpins = 200, kManySpins = 5000, kLeastProof = 8, kMostProof = 4096;
  Patience(GroupPlace place, std::shared_ptr<RankBoard> board, std::chrono::milliseconds timeout);

  /// Returns once met() holds, which some peer makes true and then rings `bell`. missing() lists the ranks (in the group) still waited for.
  template <class Met, class Missing>
  void wait(Doorbell& bell, const CommCall& call, const Met& met, const Missing& missing) const {
    const int spins = may_spin_ ? spins_.load(std::memory_order_relaxed) : 0;
    for (int turn = 0; turn < spins; ++turn) {
      if (met()) return spun(turn);
      __builtin_ia32_pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    Watch watch(call);
    while (true) {
      const std::uint32_t seen = bell.ticks();
      if (met()) break;
      bell.sleep(seen, std::chrono::milliseconds(20));
      if (met()) break;
      const std::string trouble = trouble_of(watch, missing());
      if (!trouble.empty() && !met()) fail(call, trouble);
    }
    slept(std::chrono::steady_clock::now() - begin);
  }
  [[noreturn]] void fail(const CommCall& call, const std::string& trouble) const;

  /// Every wait of this rank in this group ends with `reason`.
  void cancel() { cancelled_ = true; }
  const GroupPlace& place() const { return place_; }

 private:
  /// A wait that sleeps, and what the neighbours see of it once it is long.
  struct Watch {
    explicit Watch(const CommCall& call) : call(call) {}
    const CommCall& call;
    AwakeTimer timer = {};
    std::optional<RankWaits::Wait> shown = {};
  };
  /// Why the wait cannot go on; empty while it can. `missing` in the group.
  std::string trouble_of(Watch& watch, const std::vector<std::int64_t>& missing) const;
  std::int64_t world_rank(std::int64_t member) const { return place_.ranks[static_cast<std::size_t>(member)]; }
  void spun(int turns) const;
  void slept(std::chrono::steady_clock::duration time) const;

  GroupPlace place_;
  std::shared_ptr<RankBoard> board_;
  std::chrono::milliseconds timeout_;
  bool may_spin_;  ///< every rank of the group can have a core
  // Turns to spin before sleeping: many once enough sleeps in a row were so short that waking up was most of them, few again as soon as many do not
  // suffice (a peer computes, or waits for this very core). That doubles the proof needed for the next try; success makes it less.
  mutable std::atomic<int> spins_{kFewSpins}, short_sleeps_{0}, good_spins_{0}, proof_needed_{kLeastProof};
  std::atomic<bool> cancelled_{false};
};

}  // namespace megatron
