// What was measured of this machine, kept in the user's cache folder so that it is measured once:
// every later process, and every rank that starts at the same moment, decides by the same figures.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace megatron {

/// $XDG_CACHE_HOME/megatron, else $HOME/.cache/megatron, else empty: nothing is kept then.
std::string tuning_cache_folder();

/// The text kept under `name` for this kind of processor, or what `measure` says, which is then
/// kept; when several processes measure at the same time all return what the first one kept. A
/// folder that cannot be written is no error: the measurement is returned.
std::string cached_measurement(std::string_view name, const std::function<std::string()>& measure);

}  // namespace megatron
