// The record that each rank publishes in the rendezvous: where it runs, and a hash of its settings.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// The settings of a run as text, in the same order on every rank. Names are as a user writes them
/// ("--lr").
using SettingsText = std::vector<std::pair<std::string, std::string>>;

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

}  // namespace megatron
