// State that the ranks of one host (or process) share: which have left, which are dead, and the
// first failure, which ends every wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/parallel/failure/failure_notice.h"
#include "megatron/parallel/failure/hang_report.h"
#include "megatron/parallel/failure/process_watch.h"
#include "megatron/parallel/failure/wait_table.h"
#include "megatron/parallel/shared_memory/shared_memory.h"

namespace megatron {

class HostStatus final : public FailureNotice {
 public:
  static std::size_t bytes(std::int64_t world_size);
  /// `block` must be the same memory on all ranks of the host.
  HostStatus(std::shared_ptr<SharedMemory> block, std::int64_t world_size);

  /// Records a failure. Later reasons are ignored.
  void fail(const std::string& reason);
  bool failed() const;
  /// Returns the reason of the first failure, or "" when there is none.
  std::string failure() const override;
  bool claim_report() override;

  /// Registers this process as world rank `rank`, so that other ranks notice when it ends.
  void enter(std::int64_t rank);
  /// Records that `rank` makes no further call.
  void leave(std::int64_t rank);
  bool has_left(std::int64_t rank) const;
  /// Returns whether the process of `rank` has ended without leave(); false if it never entered.
  bool is_dead(std::int64_t rank);

  WaitTable& waits() { return waits_; }
  /// Returns the states of the ranks that have entered on this host.
  RankStates states();
  /// Adds the states that other hosts report for the ranks that block `missing`.
  using StateQuery =
      std::function<void(const std::vector<std::int64_t>& missing, RankStates& states)>;
  void set_state_query(StateQuery state_query);
  StateQuery state_query();

 private:
  struct Memory;
  struct RankEntry;
  Memory& memory() const;
  RankEntry& entry(std::int64_t rank) const;
  static std::size_t bytes_before_waits(std::int64_t world_size);
  std::shared_ptr<SharedMemory> block_;
  std::int64_t world_size_;
  WaitTable waits_;
  std::mutex mutex_;
  StateQuery state_query_;  ///< Null when all ranks are on this host.
  std::map<std::int64_t, ProcessWatch> watches_;
};

}  // namespace megatron
