// What happens to finished sums of a GEMM before they are stored.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// out [rows, columns] = sums + bias (+ what out holds), rounded once to out's type. With `sums` =
/// out (f32) it works in place.
struct GemmEpilogue {
  const float* sums;
  std::int64_t sums_stride;
  const void* bias;  ///< [columns] or null
  Type bias_type;
  void* out;
  Type out_type;
  std::int64_t out_stride;
  std::int64_t rows, columns;
  bool accumulate;
};

void gemm_epilogue(const GemmEpilogue& rows);

}  // namespace megatron::kernels
