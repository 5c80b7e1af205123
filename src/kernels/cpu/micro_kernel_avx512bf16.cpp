#define MEGATRON_KERNEL_ISA avx512bf16
#include "kernels/cpu/gemm_packing_impl.h"
#include "kernels/cpu/micro_kernel_avx512.h"

namespace megatron::kernels::avx512bf16 {
namespace {

struct Bf16DotProduct {
  static __m512 add(__m512 sum, __m512 x, __m512 b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

MicroKernel bf16_micro_kernel() {
  return {.type = Type::bf16,
          .pack = pack_pairs,
          .copy = copy_pairs,
          .multiply = multiply<Bf16DotProduct>};
}

}  // namespace megatron::kernels::avx512bf16
