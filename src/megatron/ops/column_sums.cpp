#include "megatron/ops/column_sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "kernels/cpu/column_sums.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/parallel_kernel.h"
#include "megatron/ops/row_operations.h"

namespace megatron {

at::Tensor column_sums(const at::Tensor& x) {
  const c10::ScalarType type = compute_type(x.scalar_type());
  if (!x.is_cpu()) return at::sum(x, {0}, /*keepdim=*/false, type);
  const OpScope scope("megatron::column_sums", {x});
  const at::Tensor rows = x.contiguous();
  const std::int64_t num_blocks = kernels::row_blocks(x.size(0));
  const at::Tensor blocks = at::empty({num_blocks, x.size(1)}, x.options().dtype(type));
  parallel_kernel(kernels::sum_row_blocks,
                  kernels::RowBlocksArguments{.x = rows.const_data_ptr(),
                                              .type = kernel_type(x.scalar_type()),
                                              .blocks = blocks.mutable_data_ptr(),
                                              .rows = x.size(0),
                                              .columns = x.size(1)},
                  num_blocks, kernels::kRowsPerBlock * x.size(1));
  return reduce_row_blocks(blocks);
}

}  // namespace megatron
