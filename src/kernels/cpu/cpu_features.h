// What this processor offers; kernels choose their variant by it at run time.
#pragma once

namespace megatron::kernels {

bool cpu_has_avx2();
bool cpu_has_avx512();

}  // namespace megatron::kernels
