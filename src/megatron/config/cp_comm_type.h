// How the ranks of context parallelism exchange keys and values.
#pragma once

#include <cstdint>

namespace megatron {

enum class CpCommType : std::uint8_t {
  p2p,         ///< keys and values travel around a ring while attention computes
  all_gather,  ///< every rank gathers all keys and values
  a2a,         ///< attention is divided by heads, not by positions (DeepSpeed Ulysses)
  a2a_p2p      ///< by heads within groups of neighbours, and a ring over the groups
};

}  // namespace megatron
