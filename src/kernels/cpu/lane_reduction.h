// Sums in sixteen fixed lanes, folded pairwise. Every instruction set keeps this order.
#pragma once

#include <cstdint>

#include "kernels/cpu/philox_vector.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <class C>
struct TwoSums {
  C first, second;
};

template <class C>
C reduce_lanes(C* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// Returns Σ term(c) over columns for a term of two numbers.
template <class C, class Term>
TwoSums<C> two_lane_sums(std::int64_t columns, Term term) {
  alignas(64) C first[kLanes] = {}, second[kLanes] = {};
  std::int64_t column = 0;
  for (; column + kLanes <= columns; column += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const TwoSums<C> value = term(column + lane);
      first[lane] += value.first;
      second[lane] += value.second;
    }
  }
  for (int lane = 0; column + lane < columns; ++lane) {
    const TwoSums<C> value = term(column + lane);
    first[lane] += value.first;
    second[lane] += value.second;
  }
  return {reduce_lanes(first), reduce_lanes(second)};
}

/// Returns Σ term(c) over columns.
template <class C, class Term>
C lane_sum(std::int64_t columns, Term term) {
  alignas(64) C lanes[kLanes] = {};
  std::int64_t column = 0;
  for (; column + kLanes <= columns; column += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(column + lane);
  }
  for (int lane = 0; column + lane < columns; ++lane) lanes[lane] += term(column + lane);
  return reduce_lanes(lanes);
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
