// The name of this host, the identity of its kernel and the number of its CPUs.
#pragma once

#include <string>

namespace megatron {

/// Returns the host name, which pending folders, locks and messages contain. Returns "localhost" if
/// it is unknown.
std::string host_name();

/// Returns the boot identity of this machine's kernel; empty if it is unknown. It is equal in all
/// containers and changes at boot.
std::string boot_id();

/// Returns the number of CPUs that this process may run on; at least 1.
int num_cpus();

}  // namespace megatron
