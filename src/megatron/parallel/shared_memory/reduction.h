// Reduces several tensors element by element in the order of the inputs, so that every rank
// computes the same bits.
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

/// Computes out[i] = inputs[0][i] ∘ inputs[1][i] ∘ … for two or more inputs. 16-bit floats are
/// combined in float32 and rounded once. `out` may be one of the inputs. NaN propagates through
/// max. The result is also written to `copy.to` unless that is null. Types: float64, float32,
/// bfloat16, float16, int64, int32, uint8; integers have no average.
void reduce_inputs(void* out, const std::vector<const void*>& inputs, std::int64_t elements,
                   c10::ScalarType type, ReduceOp op, const ReductionCopy& copy = {});

}  // namespace megatron
