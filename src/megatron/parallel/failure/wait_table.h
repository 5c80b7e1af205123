// What every rank of a host waits for, where its neighbours can read it, also while it is stopped:
// from this they find out who holds up the others.
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

/// A rank as its neighbours see it.
struct RankWait {
  bool is_waiting = false;  ///< it stands still in a call, and has for some time
  std::string call;         ///< "all_reduce 'grad norm' on dp"
  std::vector<std::int64_t>
      missing;                  ///< ranks of the world that it waits for: the first twenty-odd
  std::int64_t iteration = -1;  ///< of training; −1: none
};

/// A table in memory that all ranks of the host share. The methods for a rank are called in its own
/// process only, but read().
class WaitTable {
 public:
  static std::size_t bytes(std::int64_t world_size);
  /// `memory` of zeros at first, the same for all ranks.
  explicit WaitTable(std::byte* memory) : memory_(memory) {}

  void note_iteration(std::int64_t rank, std::int64_t iteration);
  std::int64_t iteration(std::int64_t rank) const;
  /// The rank's program begins (+1) or ends (−1) to stand still in a call. Calls that go on behind
  /// its back keep nobody from working.
  void add_blocked(std::int64_t rank, int change);

  /// A wait under way, for as long as the object lives, which neighbours see; `call` and `axis`
  /// must live longer.
  class Wait {
   public:
    Wait(WaitTable& waits, std::int64_t rank, const CommCall& call, const std::string& axis,
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
    const std::string& axis_;
    std::vector<std::int64_t> missing_;
    SuspendAwareTimer timer_;
  };

  /// Shows the neighbours what the rank waits for now.
  void publish(std::int64_t rank);
  /// The ranks that the rank has waited for longer than `limit` (the first such wait's); empty when
  /// there is none.
  std::vector<std::int64_t> overdue(std::int64_t rank, std::chrono::milliseconds limit);
  RankWait read(std::int64_t rank) const;

 private:
  struct Entry;
  struct Note;
  Entry& entry(std::int64_t rank) const;
  void write(std::int64_t rank, const Note& note);

  std::byte* memory_;
  std::mutex mutex_;
  std::map<std::int64_t, std::list<Wait*>> waits_;  ///< by rank, oldest first
};

}  // namespace megatron
