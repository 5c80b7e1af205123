// What ranks publish in the rendezvous: each where it runs and a hash of its settings, and rank 0
// the hosts of the run. Every rank reads that, so it must be short for tens of thousands of them:
// hosts that follow each other and are alike take one entry.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/json_fwd.h"

namespace megatron {

/// The settings of a run as text, in the same order on every rank. Names are as a user writes them
/// ("--lr").
using SettingsText = std::vector<std::pair<std::string, std::string>>;

/// What a rank publishes.
struct RankRecord {
  std::string host;  ///< Host name.
  /// Identity of machine, network namespace and /dev/shm. Ranks with equal values share memory and
  /// network.
  std::string host_id;
  /// Numeric address of this host towards rank 0's. It is a loopback address on the host of rank 0.
  std::string address;
  std::int64_t pid = 0;
  std::string cpus;           ///< CPUs that this process may use, as a bit mask.
  std::string settings_hash;  ///< Hash of the SettingsText.
};

/// Returns the record of this process. `address` is this host's address for other ranks.
RankRecord own_record(const SettingsText& settings, const std::string& address = "");

std::string write_record(const RankRecord& record);
RankRecord read_record(const std::string& text);

std::string write_settings(const SettingsText& settings);
SettingsText read_settings(const std::string& text);

/// Returns the first difference as seen from the other rank, such as "with --lr 0.1, rank 0 with
/// --lr 0.2 (and 2 more settings differ)", or "" when there is none.
std::string first_difference(const SettingsText& of_other, const SettingsText& of_rank_0);

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
