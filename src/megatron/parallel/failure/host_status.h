// What the ranks of one host (or process) know of each other: who has left, who is dead, and the
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
  /// `block` is the same memory for all ranks.
  HostStatus(std::shared_ptr<SharedMemory> block, std::int64_t world_size);

  /// The first reason stays.
  void fail(const std::string& reason);
  bool failed() const;
  /// Empty while nothing has failed.
  std::string failure() const override;
  bool claim_report() override;

  /// `rank` (of the world) is this process: from now on others notice its end.
  void enter(std::int64_t rank);
  /// `rank` makes no further call.
  void leave(std::int64_t rank);
  bool has_left(std::int64_t rank) const;
  /// The process of `rank` has ended without leaving; false where it never entered.
  bool is_dead(std::int64_t rank);

  WaitTable& waits() { return waits_; }
  /// Of the ranks that have entered here.
  RankStates states();
  /// Adds to `states` what other hosts know of the ranks that hold up `missing`.
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
  StateQuery state_query_;  ///< null where all ranks are here
  std::map<std::int64_t, ProcessWatch> watches_;
};

}  // namespace megatron
