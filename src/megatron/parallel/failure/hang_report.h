// Who holds up a group whose timeout has passed. All who wait time out together, so the rank that a
// call misses may be waiting itself: the report follows who waits for whom to the ranks that wait
// for nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/parallel/failure/wait_table.h"

namespace megatron {

class HostStatus;

struct RankState {
  enum class Kind : std::uint8_t {
    unknown,  ///< on another host, and nobody there was asked
    running,  ///< outside of any call
    waiting,
    stopped,  ///< its process does not run (SIGSTOP, a debugger)
    silent,   ///< nobody on its host answers, nor itself
  };
  Kind kind = Kind::unknown;
  RankWait wait = {};
  std::int64_t process = 0;  ///< 0: unknown
  std::string host = {};     ///< its name, of ranks on other hosts
};
using RankStates = std::map<std::int64_t, RankState>;

/// A rank whose wait has timed out.
struct TimedOutRank {
  std::int64_t rank = 0;
  std::vector<std::int64_t> missing;  ///< of the world
  std::chrono::milliseconds timeout{0};
};

/// "rank 3 has not arrived after 15 s (iteration 12; rank 3 is stopped (process 77); rank 1 waits
/// for it in recv 'activations' on pp)".
std::string hang_text(const TimedOutRank& waiter, const RankStates& states);

/// The ranks, reached from `missing` over who waits for whom, whose state nobody knows yet.
std::vector<std::int64_t> unknown_ranks(const std::vector<std::int64_t>& missing,
                                        const RankStates& states);

/// hang_text() from the host status and, for ranks on other hosts, its state query. Takes seconds
/// where others must be asked.
std::string report_hang(HostStatus& host_status, const TimedOutRank& waiter);

/// Between hosts.
std::string write_states(const RankStates& states);
RankStates read_states(const std::string& text);

}  // namespace megatron
