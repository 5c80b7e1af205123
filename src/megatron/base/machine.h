// What the machine says of itself.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// The name of this host, as pending folders, locks and messages carry it; "localhost" when it has none.
std::string host_name();

/// The processors that this process may run on, at least 1.
int num_processors();

/// OMP_NUM_THREADS, or the share of these processors that one of `num_ranks` ranks takes; at least 1.
int num_threads_of_rank(std::int64_t num_ranks);

}  // namespace megatron
