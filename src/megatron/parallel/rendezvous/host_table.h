// What rank 0 publishes about the hosts of a run. Every rank reads it, so it must be short
// for tens of thousands of them: hosts that follow each other and are alike take one entry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/json_fwd.h"
#include "megatron/parallel/rendezvous/rank_record.h"

namespace megatron {

/// Which ranks run on which host.
struct RunHosts {
  std::vector<std::string> names;          ///< Host names, ordered by their first ranks.
  std::vector<std::int64_t> host_of_rank;  ///< Index into `names`.
  std::string start;                       ///< Identity of this start of the run, from rank 0.
  std::string own_identity;                ///< Equal for ranks that share memory and network.
  std::string own_address = "127.0.0.1";   ///< Numeric address of this host as others reach it.
  /// Share of this rank among the ranks that may run on the same CPUs of this host.
  CpuPartition cpus = {};
};

/// Returns the hosts of all ranks, whose records are in the order of the ranks.
Json write_hosts(const std::vector<RankRecord>& records, const std::string& start);
/// Returns what write_hosts() wrote as it concerns rank `rank`, whose record is `own`. Throws a
/// UserError if it was not written for this many ranks.
RunHosts read_hosts(const Json& table, const RankRecord& own, std::int64_t rank,
                    std::int64_t world_size);

}  // namespace megatron
