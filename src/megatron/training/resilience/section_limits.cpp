#include "megatron/training/resilience/section_limits.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/config/fault_tolerance_config.h"

namespace megatron {
namespace {

/// Beside what nvidia-resiliency-ext reads.
constexpr const char *kLoad = "load", *kWorldSize = "world_size",
                     *kMicrobatches = "num_microbatches";
constexpr const char *kCurrent = "current_timeouts", *kSection = "section",
                     *kOutside = "out_of_section", *kCalculated = "calculated_sections",
                     *kOutsideIsCalculated = "is_out_of_section_calculated";

/// A pause of the machine is no reason to end a run whose steps take milliseconds.
constexpr double kLeastCalculated = 5;
/// Thirty years; larger numbers could not be counted in nanoseconds.
constexpr double kLongest = 1e9;

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw UserError({source, what, "remove the file; the timeouts are then calculated again"});
}

std::optional<double> limit_in(const Json& value, const std::string& source) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
    refuse(source, "has the timeout " + value.dump() + ", which is not a number above 0");
  return std::min(value.get<double>(), kLongest);
}

/// Returns the member if it exists and has the wanted type.
const Json* member(const Json& object, const char* key, bool (Json::*is_type)() const,
                   const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end()) return nullptr;
  if (!((*found).*is_type)())
    refuse(source, std::string("has a member ") + key + " of another type");
  return &*found;
}

}  // namespace

SectionLimits SectionLimits::from(const FaultToleranceConfig& config) {
  SectionLimits limits;
  const SectionTimeouts given = parse_section_timeouts(config.ft_rank_section_timeouts);
  for (std::size_t i = 0; i < given.size(); ++i) limits.seconds[i] = given[i];
  limits.seconds[kOutOfSection] = config.ft_rank_out_of_section_timeout;
  for (std::optional<double>& limit : limits.seconds)
    if (limit) limit = std::min(*limit, kLongest);
  return limits;
}

void SectionLimits::update(const PerSection<std::optional<double>>& longest_s, double factor) {
  for (std::size_t i = 0; i < longest_s.size(); ++i) {
    if (!longest_s[i]) continue;
    const double calculated = std::clamp(factor * *longest_s[i], kLeastCalculated, kLongest);
    seconds[i] = is_calculated[i] ? (*seconds[i] + calculated) / 2 : calculated;
    is_calculated[i] = true;
  }
}

bool SectionLimits::has_any() const {
  return std::ranges::any_of(seconds, [](const auto& limit) { return limit.has_value(); });
}

std::string SectionLimits::text() const {
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    text += text.empty() ? "" : ", ";
    text += i == kOutOfSection ? "out of section" : kRunSectionNames[i];
    text += seconds[i] ? format(*seconds[i] < 100 ? " %.3g s" : " %.0f s", *seconds[i]) : " none";
    if (is_calculated[i]) text += " (calculated)";
  }
  return text;
}

fs::path section_limits_path(const fs::path& save) { return save / "ft_state.json"; }

void read_calculated_limits(const fs::path& path, SectionLimits& limits) {
  if (!fs::exists(path)) return;
  const std::string source = path.string();
  if (!fs::is_regular_file(path)) refuse(source, "is not a file");
  const Json state = read_json(path);
  if (!state.is_object()) refuse(source, "is not a JSON object");
  const Json* current = member(state, kCurrent, &Json::is_object, source);
  const Json* sections =
      current != nullptr ? member(*current, kSection, &Json::is_object, source) : nullptr;
  if (sections == nullptr) return;  // nothing was calculated yet
  if (const Json* load = member(state, kLoad, &Json::is_object, source))
    limits.load = {JsonCursor(*load, source)[kWorldSize].integer(),
                   JsonCursor(*load, source)[kMicrobatches].integer()};
  const Json* seconds = member(*sections, kSection, &Json::is_object, source);
  if (const Json* names = member(*sections, kCalculated, &Json::is_array, source)) {
    for (std::size_t i = 0; i < kRunSectionNames.size(); ++i) {
      const bool is_named = std::ranges::find(*names, Json(kRunSectionNames[i])) != names->end();
      if (!is_named || seconds == nullptr || !seconds->contains(kRunSectionNames[i])) continue;
      limits.seconds[i] = limit_in(seconds->at(kRunSectionNames[i]), source);
      limits.is_calculated[i] = limits.seconds[i].has_value();
    }
  }
  const Json* outside = member(*sections, kOutsideIsCalculated, &Json::is_boolean, source);
  if (outside == nullptr || !outside->get<bool>() || !sections->contains(kOutside)) return;
  limits.seconds[kOutOfSection] = limit_in(sections->at(kOutside), source);
  limits.is_calculated[kOutOfSection] = limits.seconds[kOutOfSection].has_value();
}

void write_calculated_limits(const fs::path& path, const SectionLimits& limits) {
  JsonText seconds = JsonText::object();
  std::vector<std::string> calculated;
  for (std::size_t i = 0; i < kRunSectionNames.size(); ++i) {
    seconds[kRunSectionNames[i]] = limits.seconds[i];
    if (limits.is_calculated[i]) calculated.emplace_back(kRunSectionNames[i]);
  }
  std::ranges::sort(calculated);
  const JsonText sections = {{kSection, seconds},
                             {kOutside, limits.seconds[kOutOfSection]},
                             {kCalculated, calculated},
                             {kOutsideIsCalculated, limits.is_calculated[kOutOfSection]}};
  const JsonText state = {
      {kCurrent, {{kSection, sections}}},
      {kLoad,
       {{kWorldSize, limits.load.world_size}, {kMicrobatches, limits.load.num_microbatches}}}};
  write_file_atomically(path, state.dump() + "\n");
}

}  // namespace megatron
