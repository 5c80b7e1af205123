// One rank's end is the end of all: the first failure of a run is written where every rank sees it
// at once, so that one of them prints it and the others leave.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/parallel/rendezvous/run_store.h"

namespace megatron {

struct RankFailure {
  std::int64_t rank = 0;
  std::string host;
  int code = 1;  ///< with which every rank ends
  std::string text;
  bool is_of_others = false;  ///< the text names whom it is about: another rank than this one
};

/// The status of one start of a run. Keys: `failure`, and the waits of the rendezvous, which it
/// ends.
class RunStatus {
 public:
  /// What the rendezvous and the last goodbye wait for; set by post() too.
  static constexpr const char* kAllArrivedKey = "all-here";
  static constexpr const char* kHostsKey = "go";
  static constexpr const char* kFinishedKey = "over";
  static constexpr const char* kStoppedValue = "stop";  ///< the value of such a key after a failure

  RunStatus(RunStore store, std::int64_t world_size)
      : store_(std::move(store)), world_size_(world_size) {}

  /// Writes the failure unless there is one, and wakes everybody. Returns the first failure.
  RankFailure post(const RankFailure& failure);
  std::optional<RankFailure> first();
  /// The failure, if there is one within the time.
  std::optional<RankFailure> wait_for_failure(std::chrono::milliseconds timeout);

  void set_printed();
  bool wait_until_printed(std::chrono::milliseconds timeout);

  /// This rank needs the store no longer. The last one to say so wakes the host of the store.
  void leave(std::int64_t rank);
  /// Whether, in this time, everybody has left or one has failed.
  bool wait_until_finished(std::chrono::milliseconds timeout);
  /// The ranks that have not left yet.
  std::vector<std::int64_t> remaining_ranks();
  /// Whether, in this time, everybody has left, after a failure too.
  bool wait_until_all_left(std::chrono::milliseconds timeout);

 private:
  RunStore store_;
  std::int64_t world_size_;
};

}  // namespace megatron
