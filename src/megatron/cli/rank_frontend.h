// Parses the flags of a command that runs on several ranks, before the engine is loaded, such that
// only one rank reports a mistake.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/config/launch_environment.h"

namespace megatron {

/// Calls `read`, which throws if `args` are wrong. Returns nullopt if it succeeds. If it throws a
/// UserError, a single process rethrows it. One of several ranks runs the command in the engine,
/// where the ranks rendezvous and one of them prints the error, and returns the exit code. On
/// --help rank 0 rethrows and the other ranks return 0.
std::optional<int> parse_on_rank(const LaunchEnvironment& environment, std::string_view command,
                                 std::span<const std::string> args,
                                 const std::function<void()>& read);

}  // namespace megatron
