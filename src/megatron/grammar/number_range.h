// The decimal numbers within bounds, as regular expressions.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// A bound of numbers.
struct NumberBound {
  std::string decimal;       ///< as "-12.5"
  bool is_lower = true;      ///< numbers are at least this, otherwise at most
  bool is_excluded = false;  ///< the bound itself does not count
};

/// Returns a regular expression of the numbers that a bound allows, without exponents. They have so
/// few digits behind the point that a float64 tells them from the bound.
std::string number_range_regex(const NumberBound& bound);

}  // namespace megatron
