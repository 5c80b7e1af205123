#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/row_kernels_impl.h"

namespace megatron::kernels {
namespace avx2 {
template <class T>
RowKernels<T> table();
}
namespace avx512 {
template <class T>
RowKernels<T> table();
}

template <class T>
const RowKernels<T>& row_kernels() {
  static const RowKernels<T> chosen = cpu_has_avx512() ? avx512::table<T>() : cpu_has_avx2() ? avx2::table<T>() : portable::table<T>();
  return chosen;
}

template const RowKernels<float>& row_kernels<float>();
template const RowKernels<double>& row_kernels<double>();

}  // namespace megatron::kernels
