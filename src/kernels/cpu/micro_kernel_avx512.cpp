#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/micro_kernel_avx512.h"

#include "kernels/cpu/gemm_packing_impl.h"

namespace megatron::kernels::avx512 {
namespace {

struct FusedMultiplyAdd {
  static __m512 add(__m512 sum, __m512 x, __m512 b) { return _mm512_fmadd_ps(x, b, sum); }
};

}  // namespace

MicroKernel f32_micro_kernel() {
  return {.type = Type::f32,
          .pack = pack_to_f32,
          .copy = copy_lines_to_f32,
          .multiply = multiply<FusedMultiplyAdd>};
}

}  // namespace megatron::kernels::avx512
