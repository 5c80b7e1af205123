// A number of JSON as serde_json rounds it. The input is the number and what follows it.
#include "megatron/tokenizers/hugging_face/json_number.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t num_digits(std::string_view text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  return count;
}

/// Returns the part of `input` that is a number by JSON's grammar, empty if it begins with none.
std::string_view json_number(std::string_view input) {
  std::size_t at = input.starts_with('-') ? 1 : 0;
  const std::size_t whole = num_digits(input.substr(at));
  if (whole == 0 || (whole > 1 && input[at] == '0')) return {};
  at += whole;
  if (input.substr(at).starts_with('.'))
    if (const std::size_t count = num_digits(input.substr(at + 1)); count > 0) at += 1 + count;
  if (at < input.size() && (input[at] == 'e' || input[at] == 'E')) {
    const bool has_sign = at + 1 < input.size() && (input[at + 1] == '-' || input[at + 1] == '+');
    const std::size_t begin = at + 1 + (has_sign ? 1 : 0);
    if (const std::size_t count = num_digits(input.substr(std::min(begin, input.size()))))
      at = begin + count;
  }
  return input.substr(0, at);
}

}  // namespace

void parse_json_number(std::string_view input) {
  const std::string number(json_number(input));
  if (number.empty()) return;
  const double nearest = std::strtod(number.c_str(), nullptr);
  // JSON parsers refuse such numbers before they reach this one.
  if (std::isinf(nearest)) return;
  const double value = hugging_face::read_json_number(number);
  require(!std::isnan(value), "not a number: " + number);
  require(std::signbit(value) == (number[0] == '-'), "wrong sign: " + number);
  require(hugging_face::read_json_number(number + ",1") == value,
          "what follows changes the value of " + number);
  // The rounding to a double of the digits, of the power of ten and of their quotient, twice where
  // the power is below 10⁻³⁰⁸; digits behind the 19th are dropped, less than one part in 10¹⁸.
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
  if (std::isinf(value)) {
    require(std::abs(nearest) >= kLargest * (1 - 4 * kEpsilon), "infinite: " + number);
    return;
  }
  require(std::abs(value - nearest) <= std::abs(nearest) * 4 * kEpsilon + 2 * kSmallest,
          "far from the nearest double: " + number);
}

}  // namespace megatron::fuzz
