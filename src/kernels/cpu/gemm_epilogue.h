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

struct GemmEpilogueKernels {
  void (*finish)(const GemmEpilogue&);
};

/// The table for this CPU.
const GemmEpilogueKernels& gemm_epilogue_kernels();

}  // namespace megatron::kernels
