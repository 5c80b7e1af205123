// The name of this host and the number of its CPUs.
#pragma once

#include <string>

namespace megatron {

/// Returns the host name, which pending folders, locks and messages contain. Returns "localhost" if
/// it is unknown.
std::string host_name();

/// Returns the number of CPUs that this process may run on; at least 1.
int num_cpus();

}  // namespace megatron
