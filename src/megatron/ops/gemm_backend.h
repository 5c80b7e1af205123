// Chooses the GEMM backend of this CPU: our kernels (kernels/cpu/gemm.h) or the library's (MKL,
// oneDNN).
#pragma once

#include <c10/core/ScalarType.h>

namespace megatron {

enum class GemmBackend { own, aten };

/// Returns the backend for float32, bfloat16 or float16 GEMMs on the CPU. It is ours unless the
/// library was measured to be 1.25 times as fast over the forward, input-gradient and
/// weight-gradient GEMMs of a linear layer. Noise does not cross that margin; CPUs with AMX do.
///
/// The measurement runs once per machine (base/tuning_cache.h) and its result holds for every
/// shape, so that the bits of a row do not depend on its batch. Deterministic mode does not measure
/// and decides by the CPU's features.
GemmBackend gemm_backend(c10::ScalarType type);

/// Returns whether our kernels run a CPU GEMM of this dtype; false for types that they do not have.
bool uses_own_gemm(c10::ScalarType type);

}  // namespace megatron
