#include "kernels/cpu/state_codes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace megatron::kernels {
namespace {

/// Seven decades below 1. Decade i has 2^i numbers, or twice as many without a sign: the midpoints
/// of equal parts of [0.1, 1] times 10^(i − 6).
std::vector<double> dynamic_magnitudes(int parts_of_first_decade) {
  std::vector<double> magnitudes;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = parts_of_first_decade << decade;
    for (int part = 0; part < parts; ++part)
      magnitudes.push_back(std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts));
  }
  return magnitudes;
}

/// Returns the smallest magnitude of a cell, or of the cell after the last one.
float cell_begin(std::int32_t cell) {
  if (cell == 0) return 0;
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(cell + (127 - 23) * 64 - 1) << 17);
}

/// Makes the code of `numbers`, which contain 0 and at most 256 values. If `keeps_positive`, no
/// positive number becomes zero.
StateCode make_code(std::vector<double> numbers, bool keeps_positive) {
  std::ranges::sort(numbers);
  const auto size = std::ssize(numbers);
  if (size > StateCode::kSize) throw std::logic_error("a code of more numbers than a byte holds");
  StateCode code{};
  code.zero_rank =
      static_cast<std::int32_t>(std::ranges::lower_bound(numbers, 0.0) - numbers.begin());
  std::ranges::fill(code.boundaries, std::numeric_limits<float>::infinity());
  for (std::ptrdiff_t rank = 0; rank < size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    code.values[static_cast<std::uint8_t>(rank - code.zero_rank)] =
        static_cast<float>(numbers[index]);
    if (rank + 1 < size)
      code.boundaries[rank] = static_cast<float>((numbers[index] + numbers[index + 1]) / 2);
  }
  if (keeps_positive) code.boundaries[code.zero_rank] = 0;
  const auto below = [&](float x) {
    return static_cast<std::int32_t>(std::ranges::lower_bound(code.boundaries, x) -
                                     std::begin(code.boundaries));
  };
  for (std::int32_t cell = 0; cell < StateCode::kCells; ++cell) {
    const float end = std::min(1.0f, cell_begin(cell + 1));
    const std::int32_t first = below(cell_begin(cell)), last = below(end);
    if (last - first > 2) throw std::logic_error("a cell of a code holds too many boundaries");
    code.first_rank[cell] = first;
    const std::int32_t lowest = below(-end);
    if (below(-cell_begin(cell)) - lowest > 2)
      throw std::logic_error("a negative cell of a code holds too many boundaries");
    code.first_rank[StateCode::kCells + cell] = lowest;
  }
  return code;
}

StateCode make_dynamic_code() {
  std::vector<double> numbers{0, 1, -1};
  const std::vector<double> magnitudes = dynamic_magnitudes(1);
  for (const double magnitude : magnitudes) {
    numbers.push_back(magnitude);
    if (magnitude != magnitudes.back()) numbers.push_back(-magnitude);
  }
  return make_code(std::move(numbers), false);
}

StateCode make_unsigned_dynamic_code() {
  std::vector<double> numbers = dynamic_magnitudes(2);
  numbers.insert(numbers.end(), {0, 1});
  return make_code(std::move(numbers), true);
}

StateCode make_e4m3_code(bool is_non_negative) {
  std::vector<double> numbers{0};
  for (int pattern = 1; pattern < 0x7F; ++pattern) {  // 0x7F is NaN
    const int exponent = pattern >> 3, fraction = pattern & 7;
    const double value =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    numbers.push_back(value / 448);
    if (!is_non_negative) numbers.push_back(-value / 448);
  }
  return make_code(std::move(numbers), is_non_negative);
}

}  // namespace

const StateCode& dynamic_code() {
  static const StateCode code = make_dynamic_code();
  return code;
}

const StateCode& unsigned_dynamic_code() {
  static const StateCode code = make_unsigned_dynamic_code();
  return code;
}

const StateCode& e4m3_code(bool is_non_negative) {
  static const StateCode of_signed = make_e4m3_code(false), of_unsigned = make_e4m3_code(true);
  return is_non_negative ? of_unsigned : of_signed;
}

}  // namespace megatron::kernels
