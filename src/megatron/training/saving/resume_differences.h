// What a resumed run does differently from the run that saved its checkpoint.
#pragma once

#include <string>

#include "megatron/base/json.h"
#include "megatron/config/settings.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

/// One line for each flag that differs from the checkpoint's `saved` dump, with what follows from
/// it; "  ! " marks those after which the run is no longer the one that was saved. "" when none
/// differs.
std::string settings_differences(const Json& saved, const Settings& settings);

/// Those of the lines that are marked "  ! ".
std::string breaking_differences(const std::string& differences);

/// The schedule's state as the saved settings make it, `num_steps` in. Lengths that follow from the
/// length of the run are this run's: a run may be prolonged.
Json saved_schedule_state(const Json& saved, const Settings& settings, std::int64_t num_steps);

}  // namespace megatron
