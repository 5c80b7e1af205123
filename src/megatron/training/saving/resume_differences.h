// Compares the settings of a resumed run with those of the run that saved its checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/base/json_fwd.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

struct Settings;
struct TrainingConfig;

/// Returns one line per flag that differs from the checkpoint's settings `saved`, with the
/// consequence; "" when none differs. Lines that start with "  ! " mark differences that break
/// continuity with the saved run, which stopped after `iteration`. Where a phase of the data begins
/// (config/data_phase.h), data and sequence length may differ.
std::string settings_differences(const Json& saved, const Settings& settings,
                                 std::int64_t iteration);

/// Throws UserError when a run with --phase-transition-iterations continues one with another batch
/// size, as Megatron-LM does.
void check_phase_batch_size(const Json& saved, const TrainingConfig& training);

/// Returns only the lines of `differences` that start with "  ! ".
std::string breaking_differences(const std::string& differences);

/// Returns the schedule state after `num_steps` steps under the saved settings for this run's
/// length, which may be longer. Where a difference is to be refused, it has the saved run's values.
Json saved_schedule_state(const Json& saved, const Settings& settings, std::int64_t num_steps);

}  // namespace megatron
