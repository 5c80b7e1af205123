#include "megatron/parallel/rendezvous/rank_record.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/json.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

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

}  // namespace megatron
