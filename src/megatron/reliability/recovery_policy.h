// What happens after a failure: who notices it, who acts, and from what state the run goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct RecoveryPolicy {
  std::string name;
  /// Times until a failure is noticed. Those of a slowdown and of corruption include a reaction.
  double crash_s = 0, hang_s = 0, slowdown_s = 0, corruption_s = 0;
  double operator_s = 0;  ///< until someone acts; 0: the program does at once
  double start_s = 0;     ///< processes and communicators
  double load_s = 0;
  std::int64_t spare_hosts = 0;
  double allocation_s = 0;       ///< until the scheduler has given hosts in place of lost ones
  bool can_shrink = false;       ///< goes on with fewer replicas, and with more when hosts are back
  bool has_peer_copies = false;  ///< another host's memory has the state after each step
  double copy_s = 0;             ///< by which each step is longer because of that
};

/// The times from which the policies are made, in seconds.
struct RecoveryTimes {
  double crash_s = 1, timeout_s = 600, hang_s = 60;
  double slowdown_by_hand_s = 4 * 3600, slowdown_s = 120;
  double corruption_by_hand_s = 2 * 3600, corruption_s = 600;
  double operator_s = 1800, allocation_s = 600;
  double start_s = 120, load_s = 60;
  double restart_in_process_s = 30, peer_load_s = 10, copy_s = 0;
  std::int64_t spare_hosts = 16;
};

/// Returns: restart by hand, automatic restart from the newest checkpoint, with spare hosts and
/// copies in the memory of peers, and elastic with such copies but without spare hosts.
std::vector<RecoveryPolicy> recovery_policies(const RecoveryTimes& times);

}  // namespace megatron
