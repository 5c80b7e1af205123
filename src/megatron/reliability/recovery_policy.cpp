#include "megatron/reliability/recovery_policy.h"

namespace megatron {

std::vector<RecoveryPolicy> recovery_policies(const RecoveryTimes& times) {
  const RecoveryPolicy by_hand{.name = "restart by hand",
                               .crash_s = times.crash_s,
                               .hang_s = times.timeout_s,
                               .slowdown_s = times.slowdown_by_hand_s,
                               .corruption_s = times.corruption_by_hand_s,
                               .operator_s = times.operator_s,
                               .start_s = times.start_s,
                               .load_s = times.load_s,
                               .allocation_s = times.allocation_s};
  RecoveryPolicy automatic = by_hand;
  automatic.name = "automatic restart";
  automatic.operator_s = 0;
  const RecoveryPolicy spares{.name = "spare hosts and peer copies",
                              .crash_s = times.crash_s,
                              .hang_s = times.hang_s,
                              .slowdown_s = times.slowdown_s,
                              .corruption_s = times.corruption_s,
                              .start_s = times.restart_in_process_s,
                              .load_s = times.peer_load_s,
                              .spare_hosts = times.spare_hosts,
                              .allocation_s = times.allocation_s,
                              .has_peer_copies = true,
                              .copy_s = times.copy_s};
  RecoveryPolicy elastic = spares;
  elastic.name = "elastic with peer copies";
  elastic.spare_hosts = 0;
  elastic.can_shrink = true;
  return {by_hand, automatic, spares, elastic};
}

}  // namespace megatron
