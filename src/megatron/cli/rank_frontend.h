// Commands that run as many ranks, before the engine is loaded: one mistake in the flags is one
// message, whoever makes it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/config/launch_environment.h"

namespace megatron {

/// Calls `read`, which throws what is wrong with `args`. Nothing when it returned; else the exit
/// code, unless this rank is to speak itself: a rank among others goes on into the engine, where
/// all meet and one of them speaks.
std::optional<int> parse_on_rank(const LaunchEnvironment& environment, std::string_view command,
                                 std::span<const std::string> args,
                                 const std::function<void()>& read);

}  // namespace megatron
