// The last calls of every rank of a host, in shared memory. Reports of hangs read them even when a
// rank is suspended or dead, to find the call in which ranks part ways.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/parallel/comm.h"

namespace megatron {

/// A call of a rank as reports show it.
struct CallRecord {
  std::uint64_t number = 0;  ///< of the rank's calls, from 1
  std::string group;         ///< identity of the group; see CallHistory::groups()
  /// Number of the collective in its group, or of the message to or from `peer`, from 1. Ranks
  /// whose calls have equal numbers must make equal calls.
  std::uint64_t group_number = 0;
  CommOperation operation = CommOperation::barrier;
  std::string axis, what, layer;
  std::string type;                 ///< element type of the tensor; empty without a tensor
  std::vector<std::int64_t> shape;  ///< of the tensor that the rank passes, at most 6 dimensions
  bool is_uneven = false;           ///< ranks may pass tensors of different sizes
  bool is_awaited = false;          ///< the program, or a stream of the GPU, waits for the call
  std::int64_t peer = -1;           ///< world rank of a root or partner; −1: none
  double entered_s = 0;             ///< Unix time at which the call was made
  double left_s = 0;                ///< Unix time at which it was complete; 0: not yet
};

/// Returns a text such as "all_reduce 'linear_fc2' on tp in decoder.layers.3".
std::string describe_with_place(const CallRecord& call);

/// Returns the other ranks that `rank` waits for in a call on a group: all, or the partner of a
/// message.
std::vector<std::int64_t> awaited_ranks(const CallRecord& call, std::int64_t rank,
                                        const std::vector<std::int64_t>& group);

/// Returns whether a peer's call `made`, or a later one, is its part of `call` of `rank`.
bool is_part_of(const CallRecord& made, const CallRecord& call, std::int64_t rank);

struct CallGroup {
  std::string axis;
  std::vector<std::int64_t> ranks;  ///< world ranks, ascending
};
/// By identity, which is equal on all ranks.
using CallGroups = std::map<std::string, CallGroup>;

/// Keeps the last kNumCalls calls of each rank. Methods are thread-safe; enter(), await() and
/// leave() must be called in the rank's own process.
class CallHistory {
 public:
  static constexpr std::uint64_t kNumCalls = 64;
  static std::size_t bytes(std::int64_t world_size);
  /// `memory` must initially be zero, and the same on all ranks of the host.
  explicit CallHistory(std::byte* memory) : memory_(memory) {}

  /// Registers a group of this process and returns its identity.
  std::uint64_t add_group(const std::string& axis, const std::vector<std::int64_t>& ranks);
  /// Returns the groups of this process.
  CallGroups groups() const;

  /// Where a call is made.
  struct Place {
    std::int64_t rank = 0;           ///< world rank
    std::uint64_t group = 0;         ///< identity from add_group()
    std::uint64_t group_number = 0;  ///< see CallRecord
    std::int64_t peer = -1;          ///< world rank
    bool is_awaited = false;         ///< the program waits for the call at once
  };
  /// Records that the rank makes a call, and returns its number.
  std::uint64_t enter(const Place& place, const CommCall& call);
  /// Records that the program now waits for the call, or that the call is complete. Both ignore
  /// calls that are no longer kept.
  void await(std::int64_t rank, std::uint64_t number);
  void leave(std::int64_t rank, std::uint64_t number);

  /// Returns the calls of a rank, oldest first. A call that is being written is left out.
  std::vector<CallRecord> read(std::int64_t rank) const;

 private:
  struct Note;
  struct Slot;
  struct RankCalls;
  RankCalls& calls_of(std::int64_t rank) const;

  std::byte* memory_;
  mutable std::mutex mutex_;
  CallGroups groups_;
};

/// A call that the stream of a GPU waits for. The host only queues it.
struct DeviceCall {
  std::uint64_t number = 0;          ///< in the rank's history of calls
  std::chrono::milliseconds age{0};  ///< time since the stream waits for it
};

}  // namespace megatron
