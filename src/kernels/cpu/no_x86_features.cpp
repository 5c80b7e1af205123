// Stands in for x86_features.cpp on other CPUs, which have none of these instruction sets.
#include "kernels/cpu/cpu_features.h"

namespace megatron::kernels {

bool cpu_has_avx2() { return false; }
bool cpu_has_avx512() { return false; }
bool cpu_has_avx512_bf16() { return false; }
bool cpu_has_avx512_fp16() { return false; }
bool cpu_has_amx() { return false; }

}  // namespace megatron::kernels
