// The epilogue of a GEMM: bias, accumulation and rounding of finished sums.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// out [rows, columns] = sums + bias (+ what out holds), rounded once to out's type. It works in
/// place when `sums` is out (in f32).
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

/// The epilogue kernels of one instruction set.
struct GemmEpilogueKernels {
  void (*finish)(const GemmEpilogue&);
};

/// Returns the kernels of the best instruction set of this CPU.
const GemmEpilogueKernels& gemm_epilogue_kernels();

}  // namespace megatron::kernels
