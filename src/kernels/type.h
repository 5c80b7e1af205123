// Element types of the memory that kernels work on.
#pragma once

#include <cstdint>

namespace megatron::kernels {

enum class Type : std::int32_t { f32, f64, bf16, f16 };

/// What a KV cache stores: numbers as kernels multiply them, or bytes with a scale for each key and
/// value of a position and group.
enum class KvCacheType : std::int32_t { same, int8, fp8_e4m3 };

}  // namespace megatron::kernels
