#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/draws.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/draws_impl.h"

namespace megatron::kernels {
namespace avx2 {
Draws draws_table();
}
namespace avx512 {
Draws draws_table();
}

const Draws& draws() {
  static const Draws chosen = cpu_has_avx512() ? avx512::draws_table() : cpu_has_avx2() ? avx2::draws_table() : Draws{&portable::normals};
  return chosen;
}

}  // namespace megatron::kernels
