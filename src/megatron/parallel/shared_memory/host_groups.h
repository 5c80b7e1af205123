// Finds the ranks that share memory by trying: ranks with the same host name open a block of their
// first rank, and those that succeed form a host group. Containers on one machine may be unable to
// see each other's processes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/control/run_store.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/process_communicators.h"

namespace megatron {

struct HostGroups {
  /// For every rank of the world, the first rank of its host group.
  std::vector<std::int64_t> host_leader;
  std::shared_ptr<HostStatus> host_status;  ///< Status of this rank's host group.
};

/// Collective over the world. Throws UserError when shared memory is demanded and a rank of this
/// host cannot be reached.
HostGroups find_host_groups(const RunStore& store, const ProcessOptions& options);

}  // namespace megatron
