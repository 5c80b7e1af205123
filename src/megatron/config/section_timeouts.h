// The limits of --ft-rank-section-timeouts: how long a rank may be in one part of a run. The parts
// and their spelling are those of nvidia-resiliency-ext and of Megatron-LM's use of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/error.h"

namespace megatron {

struct FaultToleranceConfig;

enum class RunSection : std::uint8_t { setup, step, checkpointing };
inline constexpr std::array<const char*, 3> kRunSectionNames = {"setup", "step", "checkpointing"};

/// Seconds for each section; nullopt: no limit.
using SectionTimeouts = std::array<std::optional<double>, kRunSectionNames.size()>;

/// Parses "setup:600,step:180,checkpointing:420". The timeouts "none", "null" and "" mean no limit.
/// Throws a UserError for another section, a section that is given twice or a timeout that is not
/// above 0.
SectionTimeouts parse_section_timeouts(const std::string& text);

/// Returns what parse_section_timeouts() throws for these settings, or nullopt.
std::optional<UserError::Parts> section_timeouts_mistake(const FaultToleranceConfig& config);

}  // namespace megatron
