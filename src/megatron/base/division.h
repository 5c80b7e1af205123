// Divisions of sizes that round up.
#pragma once

#include <cstdint>

namespace megatron {

/// Returns ⌈a / b⌉ of numbers that are not negative.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Returns the first multiple of `unit` that is not below `number`.
constexpr std::int64_t round_up(std::int64_t number, std::int64_t unit) {
  return ceil_div(number, unit) * unit;
}

}  // namespace megatron
