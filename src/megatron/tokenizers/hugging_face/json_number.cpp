#include "megatron/tokenizers/hugging_face/json_number.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace megatron::hugging_face {
namespace {

constexpr int kMaxPower = 308, kMaxExponent = 100'000;

/// Returns the doubles nearest to 10⁰ … 10³⁰⁸.
std::array<double, kMaxPower + 1> powers_of_ten() {
  std::array<double, kMaxPower + 1> powers;
  for (int exponent = 0; exponent <= kMaxPower; ++exponent)
    powers[static_cast<std::size_t>(exponent)] =
        std::strtod(("1e" + std::to_string(exponent)).c_str(), nullptr);
  return powers;
}

double scaled(double value, int exponent) {
  static const std::array<double, kMaxPower + 1> powers = powers_of_ten();
  if (exponent >= 0) return value * powers[static_cast<std::size_t>(std::min(exponent, kMaxPower))];
  for (; exponent < -kMaxPower && value != 0; exponent += kMaxPower) value /= powers[kMaxPower];
  return value / powers[static_cast<std::size_t>(std::min(-exponent, kMaxPower))];
}

/// Reads the digits of a number up to its exponent.
class Digits {
 public:
  /// Returns whether `c` belongs to the digits.
  bool take(char c) {
    if (c == '.') {
      is_full_ = false;  // serde_json tries the digits of the fraction anew
      return is_fraction_ = true;
    }
    if (c < '0' || c > '9') return false;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    is_full_ = is_full_ || whole_ > (kMost - digit) / 10;
    if (!is_full_) whole_ = whole_ * 10 + digit;
    if (is_full_ != is_fraction_) exponent_ += is_full_ ? 1 : -1;
    return true;
  }
  double value(int exponent) const {
    return scaled(static_cast<double>(whole_), exponent_ + exponent);
  }

 private:
  std::uint64_t whole_ = 0;
  int exponent_ = 0;
  bool is_fraction_ = false, is_full_ = false;  ///< digits after a full number are ignored
};

}  // namespace

double read_json_number(std::string_view number) {
  const bool is_negative = number.starts_with('-');
  Digits digits;
  std::size_t at = is_negative ? 1 : 0;
  while (at < number.size() && digits.take(number[at])) ++at;
  int exponent = 0;
  if (at < number.size() && (number[at] == 'e' || number[at] == 'E')) {
    ++at;
    const bool is_small = number.substr(at).starts_with('-');
    if (is_small || number.substr(at).starts_with('+')) ++at;
    for (; at < number.size() && number[at] >= '0' && number[at] <= '9'; ++at)
      exponent = std::min(exponent * 10 + (number[at] - '0'), kMaxExponent);
    if (is_small) exponent = -exponent;
  }
  const double value = digits.value(exponent);
  return is_negative ? -value : value;
}

}  // namespace megatron::hugging_face
