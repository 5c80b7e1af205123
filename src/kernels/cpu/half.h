// The compiler's type for IEEE half precision.
#pragma once

namespace megatron::kernels {

#if defined(__ARM_FP16_FORMAT_IEEE)
using NativeHalf = __fp16;  // GCC 12 has no _Float16 in C++ for ARM
#else
using NativeHalf = _Float16;
#endif

}  // namespace megatron::kernels
