#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/gemm_rows.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm_rows_impl.h"

namespace megatron::kernels {
namespace avx2 {
void finish_gemm_rows(const GemmRows& rows);
}
namespace avx512 {
void finish_gemm_rows(const GemmRows& rows);
}

void finish_gemm_rows(const GemmRows& rows) {
  static const auto chosen = cpu_has_avx512() ? avx512::finish_gemm_rows : cpu_has_avx2() ? avx2::finish_gemm_rows : portable::finish;
  chosen(rows);
}

}  // namespace megatron::kernels
