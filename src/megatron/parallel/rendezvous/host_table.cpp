#include "megatron/parallel/rendezvous/host_table.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

constexpr const char* kSource = "rank 0's answer in the run's store";

/// Consecutive ranks that share CPUs of one host.
struct Run {
  std::int64_t host = 0;     ///< index
  std::int64_t sharers = 0;  ///< ranks of the host with the same CPUs
  std::int64_t place = 0;    ///< of the first rank among these
  std::int64_t ranks = 0;
  std::int64_t repeats = 1;  ///< so many hosts that follow each other have such a run
};

std::vector<Run> runs_of(const std::vector<RankRecord>& records,
                         const std::map<std::string, std::int64_t>& index_of_host) {
  using CpuSet = std::pair<std::string, std::string>;  // host id and CPU set
  std::map<CpuSet, std::int64_t> sharers, placed;
  for (const RankRecord& record : records) ++sharers[{record.host_id, record.cpus}];
  std::vector<Run> runs;
  CpuSet last;
  for (const RankRecord& record : records) {
    CpuSet own{record.host_id, record.cpus};
    const std::int64_t place = placed[own]++;
    if (runs.empty() || own != last)
      runs.push_back(
          {.host = index_of_host.at(record.host_id), .sharers = sharers[own], .place = place});
    ++runs.back().ranks;
    last = std::move(own);
  }
  return runs;
}

/// Joins runs of hosts that follow each other and are alike.
std::vector<Run> join_alike_runs(const std::vector<Run>& runs) {
  std::vector<Run> short_list;
  for (const Run& run : runs) {
    if (!short_list.empty()) {
      Run& last = short_list.back();
      if (run.host == last.host + last.repeats && run.sharers == last.sharers &&
          run.place == last.place && run.ranks == last.ranks) {
        ++last.repeats;
        continue;
      }
    }
    short_list.push_back(run);
  }
  return short_list;
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append(1, '\n');
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos;
       start = end + 1)
    lines.push_back(text.substr(start, end - start));
  return lines;
}

[[noreturn]] void refuse(const std::string& got) {
  throw UserError({kSource, got, "start every rank with the same version of megatron"});
}

Run read_run(const Json& json) {
  std::array<std::int64_t, 5> numbers{};
  if (!json.is_array() || json.size() != numbers.size()) refuse("has an entry of another form");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!json[i].is_number_integer()) refuse("has an entry of another form");
    numbers[i] = json[i].get<std::int64_t>();
    if (numbers[i] < 0) refuse("has a negative number");
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

/// Adds the ranks of one host.
void add_run(RunHosts& hosts, const Run& run, std::int64_t host, std::int64_t rank,
             std::int64_t world_size) {
  const auto first = static_cast<std::int64_t>(hosts.host_of_rank.size());
  if (host >= static_cast<std::int64_t>(hosts.names.size()) || run.ranks > world_size - first)
    refuse("has more hosts or ranks than the run");
  if (rank >= first && rank < first + run.ranks)
    hosts.cpus = {.index = run.place + rank - first, .count = run.sharers};
  hosts.host_of_rank.insert(hosts.host_of_rank.end(), static_cast<std::size_t>(run.ranks), host);
}

/// Returns this host's address for other hosts, which must all be of one family. A host whose
/// record holds a loopback address (Debian's 127.0.1.1) or one of the other family has the source
/// address of packets to the first that can be reached. Hosts that reach each other over loopback
/// are containers with one network, so that any loopback address serves all.
std::string address_for_others(const std::vector<std::string>& addresses, std::size_t own) {
  const auto is_ipv6 = [](const std::string& text) { return text.find(':') != std::string::npos; };
  const auto is_shown = [](const std::string& text) { return !text.empty() && !is_loopback(text); };
  const auto first = std::ranges::find_if(addresses, is_shown);
  if (first == addresses.end()) return addresses.front();
  const std::string& address = addresses[own];
  if (is_shown(address) && is_ipv6(address) == is_ipv6(*first)) return address;
  const std::string source = source_address_for(*first);
  return source.empty() ? address : source;
}

std::string host_identity() {
  struct stat network {
  }, memory{};
  ::stat("/proc/self/ns/net", &network);
  ::stat("/dev/shm", &memory);
  return host_name() + "|" + boot_id() + "|" + std::to_string(network.st_ino) + "|" +
         std::to_string(memory.st_dev);
}

std::string processor_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string mask;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu += 4) {
    int digit = 0;
    for (int bit = 0; bit < 4; ++bit) digit |= CPU_ISSET(cpu + bit, &set) ? 1 << bit : 0;
    mask += "0123456789abcdef"[digit];
  }
  mask.erase(mask.find_last_not_of('0') + 1);
  return mask;
}

std::string quoted(const std::string& name, const std::string& value) {
  return name + " " + (value.empty() ? "''" : value);
}

}  // namespace

RankRecord own_record(const SettingsText& settings, const std::string& address) {
  return {host_name(), host_identity(),  address,
          ::getpid(),  processor_mask(), checksum_hex(checksum(write_settings(settings)))};
}

std::string write_record(const RankRecord& record) {
  return compact_json(Json{{"host", record.host},
                           {"host_id", record.host_id},
                           {"address", record.address},
                           {"pid", record.pid},
                           {"cpus", record.cpus},
                           {"settings", record.settings_hash}});
}

RankRecord read_record(const std::string& text) {
  const std::string source = "a rank's record in the run's store";
  const JsonCursor json(parse_json(text, source), source);
  return {json["host"].text(),   json["host_id"].text(), json["address"].text(),
          json["pid"].integer(), json["cpus"].text(),    json["settings"].text()};
}

std::string write_settings(const SettingsText& settings) { return compact_json(Json(settings)); }

SettingsText read_settings(const std::string& text) {
  return parse_json(text, "a rank's settings in the run's store").get<SettingsText>();
}

std::string first_difference(const SettingsText& of_other, const SettingsText& of_rank_0) {
  const std::map<std::string, std::string> others(of_other.begin(), of_other.end()),
      own(of_rank_0.begin(), of_rank_0.end());
  std::string text;
  int num_differences = 0;
  const auto note = [&](const std::string& other, const std::string& rank_0) {
    if (num_differences++ == 0) text = other + ", rank 0 " + rank_0;
  };
  for (const auto& [name, value] : of_rank_0) {
    const auto found = others.find(name);
    if (found == others.end()) {
      note("without " + name, "with " + quoted(name, value));
    } else if (found->second != value) {
      note("with " + quoted(name, found->second), "with " + quoted(name, value));
    }
  }
  for (const auto& [name, value] : of_other) {
    if (!own.contains(name)) note("with " + quoted(name, value), "without " + name);
  }
  if (num_differences == 2) text += " (and one more setting differs)";
  if (num_differences > 2)
    text += " (and " + std::to_string(num_differences - 1) + " more settings differ)";
  return text;
}

Json write_hosts(const std::vector<RankRecord>& records, const std::string& start) {
  std::map<std::string, std::int64_t> index_of_host;
  std::vector<std::string> names, addresses;
  for (const RankRecord& record : records) {
    if (!index_of_host.emplace(record.host_id, names.size()).second) continue;
    names.push_back(record.host);
    addresses.push_back(record.address);
  }
  Json runs = Json::array();
  for (const Run& run : join_alike_runs(runs_of(records, index_of_host)))
    runs.push_back({run.host, run.sharers, run.place, run.ranks, run.repeats});
  return {{"hosts", join_lines(names)},
          {"addresses", join_lines(addresses)},
          {"runs", runs},
          {"start", start}};
}

RunHosts read_hosts(const Json& json, const RankRecord& own, std::int64_t rank,
                    std::int64_t world_size) {
  const JsonCursor table(json, kSource);
  RunHosts hosts{.names = lines_of(table["hosts"].text()),
                 .host_of_rank = {},
                 .start = table["start"].text(),
                 .own_identity = own.host_id};
  hosts.host_of_rank.reserve(static_cast<std::size_t>(world_size));
  for (const Json& entry : table["runs"].array()) {
    const Run run = read_run(entry);
    for (std::int64_t i = 0; i < run.repeats; ++i)
      add_run(hosts, run, run.host + i, rank, world_size);
  }
  const std::vector<std::string> addresses = lines_of(table["addresses"].text());
  if (addresses.size() != hosts.names.size()) refuse("has not one address for each host");
  if (static_cast<std::int64_t>(hosts.host_of_rank.size()) != world_size)
    refuse("is of " + std::to_string(hosts.host_of_rank.size()) + " ranks, and this run has " +
           std::to_string(world_size));
  hosts.own_address = address_for_others(
      addresses, static_cast<std::size_t>(hosts.host_of_rank[static_cast<std::size_t>(rank)]));
  return hosts;
}

}  // namespace megatron
