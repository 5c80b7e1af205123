// Which ranks share memory. Found by trying: ranks that name the same host open a block of their
// first rank, and those that succeed are a host group. (Containers on one machine need not see each
// other's processes.)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/gloo/bootstrap_store.h"
#include "megatron/parallel/process_communicators.h"

namespace megatron {

struct HostGroups {
  std::vector<std::int64_t>
      host_leader;  ///< per rank of the world, the first rank of its host group
  std::shared_ptr<HostStatus> host_status;  ///< of this rank's host group
};

/// Collective over the world. Throws UserError when shared memory is demanded and a rank of this
/// host cannot be reached.
HostGroups find_host_groups(const BootstrapStore& bootstrap, const ProcessOptions& options);

}  // namespace megatron
