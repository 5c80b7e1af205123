// Which iterations a run records: --profile-step-start and --profile-step-end.
#pragma once

#include "megatron/config/settings.h"

namespace megatron {

/// Whether --profile-step-start and --profile-step-end say it: with --profile always, for --trace
/// once one of them is not its default.
bool has_profile_window(const LoggerConfig& logger);

}  // namespace megatron
