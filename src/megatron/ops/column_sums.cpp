#include "megatron/ops/column_sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "kernels/cpu/column_sums.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

at::Tensor sums_on_cpu(const at::Tensor& x) {
  const at::Tensor rows = x.contiguous();
  const std::int64_t num_blocks = kernels::row_blocks(x.size(0));
  const at::Tensor blocks =
      at::empty({num_blocks, x.size(1)}, x.options().dtype(compute_type(x.scalar_type())));
  parallel_kernel(kernels::sum_row_blocks,
                  kernels::RowBlocksArguments{.x = rows.const_data_ptr(),
                                              .type = kernel_type(x.scalar_type()),
                                              .blocks = blocks.mutable_data_ptr(),
                                              .rows = x.size(0),
                                              .columns = x.size(1)},
                  num_blocks, kernels::kRowsPerBlock * x.size(1));
  return reduce_row_blocks(blocks);
}

at::Tensor sums_by_aten(const at::Tensor& x) {
  return at::sum(x, {0}, /*keepdim=*/false, compute_type(x.scalar_type()));
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<sums_on_cpu>(library, "column_sums");
  register_kernel<sums_by_aten>(library, "column_sums", kAnyDevice);
}

}  // namespace

at::Tensor column_sums(const at::Tensor& x) {
  static const Operator<sums_on_cpu> op("megatron::column_sums");
  return op(x);
}

at::Tensor reduce_row_blocks(const at::Tensor& blocks) {
  at::Tensor sums = at::empty({blocks.size(1)}, blocks.options());
  parallel_kernel(kernels::add_row_blocks,
                  kernels::ColumnSumsArguments{.blocks = blocks.const_data_ptr(),
                                               .sums = sums.mutable_data_ptr(),
                                               .type = kernel_type(blocks.scalar_type()),
                                               .num_blocks = blocks.size(0),
                                               .columns = blocks.size(1)},
                  blocks.size(1), blocks.size(0), /*multiple=*/64);
  return sums;
}

}  // namespace megatron
