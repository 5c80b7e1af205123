// Finds the rank that blocks a group whose timeout has passed. All waiting ranks time out together,
// and the rank that a call misses may itself be waiting. The report therefore follows the chain of
// waits to the ranks that do not wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/parallel/failure/wait_table.h"

namespace megatron {

class HostStatus;

/// Work of a rank that may let others wait; see Communicators::begin_section().
struct RankSection {
  std::string what;
  std::chrono::milliseconds age{0};
  std::chrono::milliseconds since_progress{0};  ///< since its CPU time or its files changed last
};

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
  std::int64_t process = 0;                 ///< Process id; 0: unknown.
  std::string host = {};                    ///< Host name, for ranks on other hosts.
  std::optional<RankSection> section = {};  ///< of a running rank
  std::string stack = {};  ///< Of the main thread, in one line; "" if it is unknown.
};
using RankStates = std::map<std::int64_t, RankState>;

/// A rank whose wait has timed out, with the world ranks that it waits for.
struct TimedOutRank {
  std::int64_t rank = 0;
  std::vector<std::int64_t> missing;
  std::chrono::milliseconds timeout{0};
  std::optional<std::chrono::milliseconds> waited = {};  ///< if it is longer than the timeout
};

/// Time between two decisions whether a wait past its timeout is to continue.
inline std::chrono::milliseconds decision_interval(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  return std::clamp(timeout / 10, milliseconds(1'000), milliseconds(10'000));
}

/// Returns, for example, "rank 3 has not arrived after 15 s (iteration 12; rank 3 is stopped
/// (process 77); rank 1 waits for it in recv 'activations' on pp)".
std::string hang_text(const TimedOutRank& waiter, const RankStates& states);

/// Returns the ranks of unknown state that are reached from `missing` by following who waits for
/// whom.
std::vector<std::int64_t> unknown_ranks(const std::vector<std::int64_t>& missing,
                                        const RankStates& states);

/// Returns whether the ranks that block the waiter are in sections in which they make progress, so
/// that the wait should continue.
bool is_worth_waiting(const TimedOutRank& waiter, const RankStates& states);

/// Adds the stacks of those `ranks` of this host that are running. It takes a second for each rank
/// that does not answer.
void add_stacks(HostStatus& host_status, const std::vector<std::int64_t>& ranks,
                RankStates& states);

/// Returns `missing` and all ranks that those wait for, in order of discovery.
std::vector<std::int64_t> reachable_ranks(const std::vector<std::int64_t>& missing,
                                          const RankStates& states);

/// Returns hang_text() for the states of this host and, through the host status' state query, of
/// other hosts; "" when is_worth_waiting(). It takes seconds when other hosts must be asked.
std::string report_hang(HostStatus& host_status, const TimedOutRank& waiter);

/// Serializes states for other hosts; read_states() is the inverse.
std::string write_states(const RankStates& states);
/// Throws a UserError for states that no rank of so many writes.
RankStates read_states(const std::string& text, std::int64_t world_size);

}  // namespace megatron
