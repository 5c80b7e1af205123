// What the machine says of itself.
#pragma once

#include <string>

namespace megatron {

/// The name of this host, as pending folders, locks and messages carry it; "localhost" when it has
/// none.
std::string host_name();

/// The CPUs that this process may run on, at least 1.
int num_cpus();

}  // namespace megatron
