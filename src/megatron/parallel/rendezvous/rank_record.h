// What ranks tell each other when they meet: where they run, and a checksum of what they were told
// to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// A run's settings as text, in an order that is the same on every rank; names as a user writes
/// them ("--lr").
using SettingsText = std::vector<std::pair<std::string, std::string>>;

struct RankRecord {
  std::string host;     ///< its name, for people
  std::string host_id;  ///< equal for ranks that share memory and network: machine, network
                        ///< namespace and /dev/shm
  std::string address;  ///< of this host towards rank 0's, in digits; a loopback address on the
                        ///< host of rank 0
  std::int64_t pid = 0;
  std::string cpus;           ///< which this process may use, as a bit mask
  std::string settings_hash;  ///< of the SettingsText
};

/// This process, whose host has `address` for the others.
RankRecord own_record(const SettingsText& settings, const std::string& address = "");

/// The address that packets from here to `address` (in digits, so that no resolver is asked) carry;
/// "" when there is none.
std::string source_address_for(const std::string& address);

std::string write_record(const RankRecord& record);
RankRecord read_record(const std::string& text);

std::string write_settings(const SettingsText& settings);
SettingsText read_settings(const std::string& text);

/// "with --lr 0.1, rank 0 with --lr 0.2 (and 2 more settings differ)": the first difference, seen
/// from the other rank; "" when there is none.
std::string first_difference(const SettingsText& of_other, const SettingsText& of_rank_0);

/// "3, 5-8, 12".
std::string rank_list_text(const std::vector<std::int64_t>& ranks);

}  // namespace megatron
