// Rules on the iterations that a run profiles: --profile-step-start and --profile-step-end.
#pragma once

namespace megatron {

struct LoggerConfig;

/// Returns whether --profile-step-start and --profile-step-end limit the recording: always with
/// --profile, and for --trace if one of them differs from its default.
bool has_profile_window(const LoggerConfig& logger);

}  // namespace megatron
