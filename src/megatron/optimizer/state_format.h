// How a state of the optimizer is stored: a type, or 8 bits with a code and a scale for each block.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "kernels/state_code.h"

namespace megatron {

struct StateFormat {
  // Implicit, because a type alone is a format.
  StateFormat(at::ScalarType type) : dtype(type) {}  // NOLINT(google-explicit-constructor)
  StateFormat(at::ScalarType type, const kernels::StateCode* of) : dtype(type), code(of) {}

  at::ScalarType dtype;
  const kernels::StateCode* code = nullptr;  ///< of 8-bit states, which are bytes

  /// Returns whether each kernels::kStateBlock elements have a scale.
  bool has_scales() const { return code != nullptr || dtype == at::kHalf; }
  /// Returns the type that visitors and checkpoints see.
  at::ScalarType visible_dtype() const { return has_scales() ? at::kFloat : dtype; }
};

/// Returns the format that --exp-avg-dtype names: fp32, bf16, fp16, int8 or fp8. States of
/// non-negative numbers have a code of their own, in which no positive number becomes zero: Adam
/// divides by the root of its second moment.
StateFormat state_format(const std::string& name, bool is_non_negative);

}  // namespace megatron
