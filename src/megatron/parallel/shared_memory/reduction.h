// Sums and the like of several tensors, element by element in the order of the inputs: the same
// bits whoever computes it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/shared_memory/byte_copy.h"

namespace megatron {

struct ReductionCopy {
  std::byte* to = nullptr;
  CopyMode mode = CopyMode::cached;
};

/// out[i] = inputs[0][i] ∘ inputs[1][i] ∘ … (two inputs or more); 16-bit floats are combined in
/// float32 and rounded once. `out` may be one of the inputs. NaN wins in max and min. Where `copy`
/// is given, the result goes there too. float64, float32, bfloat16, float16, int64, int32, uint8;
/// integers have no average.
void reduce_inputs(void* out, const std::vector<const void*>& inputs, std::int64_t elements,
                   c10::ScalarType type, ReduceOp op, const ReductionCopy& copy = {});

}  // namespace megatron
