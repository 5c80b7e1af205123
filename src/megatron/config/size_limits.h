// Bounds of settings that are sizes or counts.
#pragma once

#include <cstdint>

namespace megatron {

/// Upper bounds of settings. Products of sizes within these bounds fit in 64 bits.
inline constexpr std::int64_t kMaxSize = 1'000'000'000, kMaxLayers = 100'000,
                              kMaxSamples = kMaxSize * kMaxSize;

}  // namespace megatron
