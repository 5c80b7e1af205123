// What the environment chooses of a layout table: MEGATRON_TEST_LAYOUTS=all takes every
// combination, and MEGATRON_TEST_SEED repeats the random ones.
#pragma once

#include <cstdlib>
#include <random>
#include <string>

namespace megatron::layouts {

inline bool wants_all() {
  const char* wanted = std::getenv("MEGATRON_TEST_LAYOUTS");
  return wanted != nullptr && std::string(wanted) == "all";
}

/// Returns MEGATRON_TEST_SEED, or a new seed.
inline unsigned layout_seed() {
  const char* given = std::getenv("MEGATRON_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
}

}  // namespace megatron::layouts
