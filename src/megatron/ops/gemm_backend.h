// Whose GEMMs are faster on this CPU: ours (kernels/cpu/gemm.h) or the library's (MKL, oneDNN).
#pragma once

#include <c10/core/ScalarType.h>

namespace megatron {

enum class GemmBackend { own, aten };

/// Who makes products of float32, bfloat16 or float16 on the CPU: ours, unless the library was
/// measured to be 1.25 times as fast over forward, input-gradient and weight-gradient products (a
/// margin that noise does not cross; processors with AMX are beyond it). Measured once per machine
/// (base/tuning_cache.h) and the same for every shape, so that a row's bits do not depend on its
/// batch. Deterministic mode does not measure: it goes by the CPU's features.
GemmBackend gemm_backend(c10::ScalarType type);

}  // namespace megatron
