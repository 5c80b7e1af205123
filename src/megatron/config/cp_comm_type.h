// How the ranks of context parallelism exchange keys and values.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

enum class CpCommType : std::uint8_t {
  p2p,         ///< keys and values travel around a ring while attention computes
  all_gather,  ///< every rank gathers all keys and values
  a2a,         ///< attention is divided by heads, not by positions (DeepSpeed Ulysses)
  a2a_p2p      ///< by heads within groups of neighbours, and a ring over the groups
};

/// Returns the type of a layer, by its 0-based index in the whole model. `types` are one for all
/// layers, or one for each.
inline CpCommType comm_type_of(const std::vector<CpCommType>& types, std::int64_t layer) {
  return types.size() == 1 ? types.front() : types[static_cast<std::size_t>(layer)];
}

}  // namespace megatron
