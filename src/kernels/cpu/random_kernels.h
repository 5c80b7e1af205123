// Random numbers by coordinates, for initial weights.
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// The random kernels of one instruction set.
struct RandomKernels {
  /// Writes to out[i] the float32 nearest to element first + i of the site `key`: standard normals
  /// by Box–Muller in double (see init.h), times `std`. The bits are those of the C library's log,
  /// sin and cos. Where a result lies so near the middle of two floats that its last bits could
  /// matter, `exact` computes that element.
  void (*normals)(double std, std::uint64_t key, std::int64_t first, std::int64_t count, float* out,
                  double (*exact)(double std, std::uint64_t key, std::int64_t element));
};

/// Returns the kernels of the best instruction set of this CPU.
const RandomKernels& random_kernels();

}  // namespace megatron::kernels
