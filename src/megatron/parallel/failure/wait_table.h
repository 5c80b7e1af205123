// Records in shared memory what every rank of a host waits for. Other ranks can read it even while
// the rank is suspended, and so find out which rank blocks the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// The wait of a rank as other ranks see it.
struct RankWait {
  bool is_waiting = false;            ///< The rank has been blocked in a call for some time.
  std::string call;                   ///< Such as "all_reduce 'grad norm' on dp".
  std::vector<std::int64_t> missing;  ///< World ranks that it waits for, about the first twenty.
  std::int64_t iteration = -1;        ///< Training iteration; −1: none.
};

/// A table in memory that all ranks of the host share. Methods that take a rank must be called in
/// that rank's own process, except read().
class WaitTable {
 public:
  static std::size_t bytes(std::int64_t world_size);
  /// `memory` must initially be zero, and the same on all ranks.
  explicit WaitTable(std::byte* memory) : memory_(memory) {}

  void note_iteration(std::int64_t rank, std::int64_t iteration);
  std::int64_t iteration(std::int64_t rank) const;
  /// Records that the rank's program enters (+1) or leaves (−1) a blocking call. Asynchronous calls
  /// do not count, because they do not block it.
  void add_blocked(std::int64_t rank, int change);

  /// Makes a wait visible to other ranks for as long as the object lives. `call` must
  /// outlive it.
  class Wait {
   public:
    Wait(WaitTable& waits, std::int64_t rank, const CommCall& call,
         std::vector<std::int64_t> missing);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    void update(std::vector<std::int64_t> missing);

   private:
    friend class WaitTable;
    WaitTable& waits_;
    std::int64_t rank_;
    const CommCall& call_;
    std::vector<std::int64_t> missing_;
    SuspendAwareTimer timer_;
  };

  /// Publishes the current wait of the rank.
  void publish(std::int64_t rank);
  /// Returns the ranks that the first wait longer than `limit` misses, or nothing when no wait is
  /// that long.
  std::vector<std::int64_t> overdue(std::int64_t rank, std::chrono::milliseconds limit);
  RankWait read(std::int64_t rank) const;

 private:
  struct Entry;
  struct Note;
  Entry& entry(std::int64_t rank) const;

  std::byte* memory_;
  std::mutex mutex_;
  std::map<std::int64_t, std::list<Wait*>> waits_;  ///< By rank, oldest first.
};

}  // namespace megatron
