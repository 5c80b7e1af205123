#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/gemm_epilogue.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm_epilogue_impl.h"

namespace megatron::kernels {
namespace avx2 {
void gemm_epilogue(const GemmEpilogue& rows);
}
namespace avx512 {
void gemm_epilogue(const GemmEpilogue& rows);
}

void gemm_epilogue(const GemmEpilogue& rows) {
  static const auto chosen = cpu_has_avx512() ? avx512::gemm_epilogue
                             : cpu_has_avx2() ? avx2::gemm_epilogue
                                              : portable::finish;
  chosen(rows);
}

}  // namespace megatron::kernels
