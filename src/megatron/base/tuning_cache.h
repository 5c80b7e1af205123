// Caches measurements of this machine in the user's cache folder. Each is measured only once, and
// all ranks and later processes use the same values.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace megatron {

/// Returns $XDG_CACHE_HOME/megatron, else $HOME/.cache/megatron, else "". If it is "", nothing is
/// cached.
std::string tuning_cache_folder();

/// Returns the text cached under `name` for this CPU model. If there is none, calls `measure` and
/// caches the result. If several processes measure at the same time, all return the value that was
/// cached first. A folder that cannot be written is not an error: the measurement is returned.
std::string cached_measurement(std::string_view name, const std::function<std::string()>& measure);

}  // namespace megatron
