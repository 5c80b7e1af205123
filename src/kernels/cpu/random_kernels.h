// Initial weights: numbers by coordinates, drawn as fast as they can be written.
#pragma once

#include <cstdint>

namespace megatron::kernels {

struct RandomKernels {
  /// out[i] is the float32 nearest to element first + i of the site `key`, of which init.h has the
  /// definition: standard normals by Box–Muller in double, times `std`. What the C library's log,
  /// sin and cos give, to the last bit: where a product lies so near the middle of two floats that
  /// their last bits could matter, `exact` is asked for that element.
  void (*normals)(double std, std::uint64_t key, std::int64_t first, std::int64_t count, float* out,
                  double (*exact)(double std, std::uint64_t key, std::int64_t element));
};

/// The table for this CPU.
const RandomKernels& random_kernels();

}  // namespace megatron::kernels
