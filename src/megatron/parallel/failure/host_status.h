// State that the ranks of one host (or process) share: which have left, which are dead, what each
// waits for and has called, and the first failure, which ends every wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/descriptor.h"
#include "megatron/parallel/failure/call_history.h"
#include "megatron/parallel/failure/failure_notice.h"
#include "megatron/parallel/failure/hang_report.h"
#include "megatron/parallel/failure/wait_table.h"
#include "megatron/parallel/shared_memory/shared_memory.h"

namespace megatron {

/// Tells whether another process of this host still runs. A zombie process counts as ended.
class ProcessWatch {
 public:
  explicit ProcessWatch(std::int32_t process);
  bool has_ended() const;

 private:
  std::int32_t process_;
  Descriptor handle_;  ///< none when the kernel lacks pidfd_open or the process had already ended.
};

class HostStatus final : public FailureNotice {
 public:
  static std::size_t bytes(std::int64_t world_size);
  /// `block` must be the same memory on all ranks of the host.
  HostStatus(std::shared_ptr<SharedMemory> block, std::int64_t world_size);

  /// Records a failure. Later reasons are ignored. A failure is explained when `reason` is the
  /// message of a rank that failed, and not only a guess from its silence.
  void fail(const std::string& reason, bool is_explained = false);
  bool failed() const;
  /// Returns the reason of the first failure, or "" when there is none.
  std::string failure() const override;
  bool is_failure_explained() const override;
  void mark_as_guess() override;
  bool claim_report() override;
  /// Returns true for the first caller among the ranks of this host, which says where the dumps of
  /// a failure are.
  bool claim_dump_notice();

  /// Registers this process as world rank `rank`, so that other ranks detect when it ends.
  void enter(std::int64_t rank);
  /// Records that `rank` makes no further call.
  void leave(std::int64_t rank);
  bool has_left(std::int64_t rank) const;
  /// Returns whether the process of `rank` has ended without leave(); false if it never entered.
  bool is_dead(std::int64_t rank);
  bool has_process_ended(std::int64_t rank) override;

  /// See Communicators. Must be called in the rank's own process.
  void begin_section(std::int64_t rank, const std::string& what);
  void end_section(std::int64_t rank);
  /// Returns the section that the rank is in.
  std::optional<RankSection> section_of(std::int64_t rank) const;
  /// Records that the rank made progress in its section. HangWatch calls it.
  void record_progress(std::int64_t rank);

  WaitTable& waits() { return waits_; }
  CallHistory& history() { return history_; }

  /// Requests the stack of a rank of this host and returns it in one line. Returns "" if the rank
  /// does not answer within a second: it is stopped or a thread of a test. HangWatch answers.
  std::string request_stack(std::int64_t rank);
  /// Returns whether the stack of this process' rank is requested, once for each request.
  bool take_stack_request(std::int64_t rank);
  void answer_stack_request(std::int64_t rank, const std::string& stack);
  /// Returns true if no rank of this host has printed a warning within `pause`; the caller then
  /// prints one.
  bool claim_warning(std::chrono::milliseconds pause);

  /// Returns the states of the ranks that have entered on this host.
  RankStates states();
  /// Returns true for the first caller among this host's ranks, which then publishes the states
  /// that this request of another host asks for, and calls set_answered_request().
  bool claim_states_request(std::int64_t request);
  void set_answered_request(std::int64_t request);
  /// Returns the last request that was answered; 0: none.
  std::int64_t answered_request() const;
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
  static std::size_t bytes_before_history(std::int64_t world_size);
  std::shared_ptr<SharedMemory> block_;
  std::int64_t world_size_;
  WaitTable waits_;
  CallHistory history_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> section_depths_;  ///< of the ranks of this process
  StateQuery state_query_;                               ///< Null when all ranks are on this host.
  std::map<std::int64_t, ProcessWatch> watches_;
};

}  // namespace megatron
