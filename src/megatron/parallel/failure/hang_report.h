// Finds the rank that blocks a group whose timeout has passed. All waiting ranks time out together,
// and the rank that a call misses may itself be waiting. The report therefore follows who waits for
// whom to the ranks that wait for nobody.
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
    unknown,  ///< The rank is on another host that was not asked.
    running,  ///< The rank is outside of any call.
    waiting,
    stopped,  ///< Its process is suspended (SIGSTOP, a debugger).
    silent,   ///< Neither the rank nor its host answers.
  };
  Kind kind = Kind::unknown;
  RankWait wait = {};
  std::int64_t process = 0;  ///< Process id; 0: unknown.
  std::string host = {};     ///< Host name, for ranks on other hosts.
};
using RankStates = std::map<std::int64_t, RankState>;

/// A rank whose wait has timed out, with the world ranks that it waits for.
struct TimedOutRank {
  std::int64_t rank = 0;
  std::vector<std::int64_t> missing;
  std::chrono::milliseconds timeout{0};
};

/// Returns, for example, "rank 3 has not arrived after 15 s (iteration 12; rank 3 is stopped
/// (process 77); rank 1 waits for it in recv 'activations' on pp)".
std::string hang_text(const TimedOutRank& waiter, const RankStates& states);

/// Returns the ranks of unknown state that are reached from `missing` by following who waits for
/// whom.
std::vector<std::int64_t> unknown_ranks(const std::vector<std::int64_t>& missing,
                                        const RankStates& states);

/// Returns hang_text() for the states of this host and, through the host status' state query, of
/// other hosts. It takes seconds when other hosts must be asked.
std::string report_hang(HostStatus& host_status, const TimedOutRank& waiter);

/// Serializes states for other hosts; read_states() is the inverse.
std::string write_states(const RankStates& states);
RankStates read_states(const std::string& text);

}  // namespace megatron
