// Element types of the memory that kernels work on.
#pragma once

#include <cstdint>

namespace megatron::kernels {

enum class Type : std::int32_t { f32, f64, bf16, f16 };

}  // namespace megatron::kernels
