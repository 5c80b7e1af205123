#include "megatron/config/section_timeouts.h"

#include <algorithm>
#include <sstream>

#include "megatron/base/words.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/field_values.h"

namespace megatron {
namespace {

UserError mistake(const std::string& what) {
  return UserError({"--ft-rank-section-timeouts", what,
                    "write it like setup:600,step:180,checkpointing:420, in seconds"});
}

/// Returns the text without white space around it.
std::string trimmed(const std::string& text) {
  const std::vector<std::string> words = split_words(text);
  if (words.empty()) return "";
  return words.size() == 1 ? words[0] : text;
}

std::optional<double> timeout_of(const std::string& text) {
  if (text.empty() || is_none(text)) return std::nullopt;
  double seconds = 0;
  try {
    seconds = number_value(text);
  } catch (const FieldError&) {
    throw mistake("'" + text + "' is not a number of seconds");
  }
  if (seconds <= 0) throw mistake("the timeout " + text + " is not above 0");
  return seconds;
}

}  // namespace

SectionTimeouts parse_section_timeouts(const std::string& text) {
  SectionTimeouts timeouts;
  std::array<bool, kRunSectionNames.size()> is_given{};
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t colon = part.find(':');
    if (colon == std::string::npos) throw mistake("'" + part + "' has no timeout");
    const std::string name = trimmed(part.substr(0, colon));
    const auto known = std::ranges::find(kRunSectionNames, name);
    if (known == kRunSectionNames.end())
      throw mistake("'" + name + "' is not a section: there are setup, step and checkpointing");
    const auto index = static_cast<std::size_t>(known - kRunSectionNames.begin());
    if (is_given[index]) throw mistake("the section " + name + " is given twice");
    is_given[index] = true;
    timeouts[index] = timeout_of(trimmed(part.substr(colon + 1)));
  }
  return timeouts;
}

std::optional<UserError::Parts> section_timeouts_mistake(const FaultToleranceConfig& config) {
  try {
    parse_section_timeouts(config.ft_rank_section_timeouts);
  } catch (const UserError& error) {
    return error.parts();
  }
  return std::nullopt;
}

}  // namespace megatron
