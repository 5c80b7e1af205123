// x86-64 instruction sets that this CPU has; other CPUs have none of them. Kernels choose their
// variant by them at run time (dispatch.h).
#pragma once

namespace megatron::kernels {

bool cpu_has_avx2();
bool cpu_has_avx512();
bool cpu_has_avx512_bf16();  ///< AVX512-BF16: dot products of bf16 into fp32
bool cpu_has_avx512_fp16();  ///< AVX512-FP16
bool cpu_has_amx();          ///< AMX-BF16: GEMMs of bf16 tiles

}  // namespace megatron::kernels
