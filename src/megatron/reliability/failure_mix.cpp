#include "megatron/reliability/failure_mix.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;

constexpr std::array<std::pair<FailureSign, const char*>, 5> kNames{
    {{FailureSign::crash, "crash"},
     {FailureSign::hang, "hang"},
     {FailureSign::slowdown, "slowdown"},
     {FailureSign::corruption, "corruption"},
     {FailureSign::announced, "announced"}}};

double positive(const JsonCursor& json) {
  const double value = json.number();
  if (value > 0 && value < 1e12) return value;
  throw UserError({json.place(), format("is %g", value), "give a number above 0"});
}

FailureClass read_class(const JsonCursor& unnamed, const std::string& path) {
  FailureClass read;
  read.name = unnamed["name"].text();
  const std::string place = path + ": class '" + read.name + "'";
  const JsonCursor entry(*unnamed, place);
  read.count = positive(entry["count"]);
  read.sign = failure_sign(entry["sign"].text(), place);
  if (entry->contains("host_hours")) {
    read.host_out_s = entry["host_hours"].number() * kHour;
    if (!(read.host_out_s >= 0 && read.host_out_s < 1e12))
      throw UserError({place + ": host_hours", format("are %g", read.host_out_s / kHour),
                       "give the hours that a host is out, at least 0"});
  }
  return read;
}

}  // namespace

const char* name_of(FailureSign sign) {
  return std::ranges::find(kNames, sign, &std::pair<FailureSign, const char*>::first)->second;
}

FailureSign failure_sign(const std::string& name, const std::string& place) {
  for (const auto& [sign, known] : kNames)
    if (name == known) return sign;
  throw UserError({place + ": sign", "'" + name + "' is unknown",
                   "use crash, hang, slowdown, corruption or announced"});
}

double FailureMix::rate_of_gpu() const {
  double count = 0;
  for (const FailureClass& each : classes) count += each.count;
  return count / (gpus * seconds);
}

FailureMix llama3_failure_mix() {
  constexpr double repair = kDay, network = 4 * kHour, service = 4 * kHour;
  using enum FailureSign;
  return {.name = "llama3",
          .gpus = 16384,
          .seconds = 54 * kDay,
          .classes = {{"faulty GPU", 148, crash, repair},
                      {"GPU HBM3 memory", 72, crash, repair},
                      {"software bug", 54, crash, 0},
                      {"network switch or cable", 35, hang, network},
                      {"unplanned host maintenance", 32, crash, service},
                      {"GPU SRAM memory", 19, crash, repair},
                      {"GPU system processor", 17, hang, repair},
                      {"NIC", 7, hang, repair},
                      {"NCCL watchdog timeout", 7, hang, 0},
                      {"silent data corruption", 6, corruption, repair},
                      {"GPU thermal interface, sensor", 6, slowdown, repair},
                      {"SSD", 3, crash, repair},
                      {"power supply", 3, crash, repair},
                      {"server chassis", 2, crash, repair},
                      {"IO expansion board", 2, crash, repair},
                      {"dependency", 2, crash, 0},
                      {"CPU", 2, crash, repair},
                      {"system memory", 2, crash, repair},
                      {"planned maintenance", 47, announced, 0}}};
}

FailureMix read_failure_mix(const std::string& path) {
  const JsonCursor root(read_json(path), path);
  FailureMix mix;
  mix.name = path;
  mix.gpus = positive(root["gpus"]);
  mix.seconds = positive(root["days"]) * kDay;
  const JsonCursor classes = root["classes"];
  if (!classes->is_array() || classes->empty())
    throw UserError({path + ": classes", "are no list with at least one class",
                     "give a list of objects with name, count and sign"});
  for (const JsonCursor& entry : classes.elements()) mix.classes.push_back(read_class(entry, path));
  return mix;
}

}  // namespace megatron
