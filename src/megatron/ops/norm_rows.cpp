#include "megatron/ops/norm_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/parallel_kernel.h"
#include "megatron/ops/row_operations.h"

namespace megatron {
namespace {

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
void* mutable_or_null(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }

void check(const NormParams& formula, c10::ScalarType type) {
  MEGATRON_CHECK(
      formula.weight.scalar_type() == compute_type(type) && formula.weight.is_contiguous(),
      "weight of a norm");
}

/// Runs two row kernels, one after the other, on each block of rows: the residual add and the norm
/// in forward, the norm's gradient and the dropout mask in backward. The second kernel does nothing
/// when there is no branch.
template <class Arguments>
struct Joined {
  Arguments norm;
  kernels::DropoutArguments branch;
  bool has_branch;
};

void sum_and_norm(const Joined<kernels::NormArguments>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; row += kernels::kRowsPerBlock) {
    const std::int64_t last = std::min(end, row + kernels::kRowsPerBlock);
    if (a.has_branch) kernels::row_kernels().dropout(a.branch, row, last);
    kernels::norm_kernels().forward(a.norm, row, last);
  }
}

void gradient_and_dropout(const Joined<kernels::NormBackwardArguments>& a, std::int64_t begin,
                          std::int64_t end) {
  for (std::int64_t block = begin; block < end; ++block) {
    kernels::norm_kernels().backward(a.norm, block, block + 1);
    const std::int64_t row = block * kernels::kRowsPerBlock;
    if (a.has_branch)
      kernels::row_kernels().dropout(a.branch, row,
                                     std::min(a.norm.rows, row + kernels::kRowsPerBlock));
  }
}

}  // namespace

NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& formula,
                   c10::ScalarType type) {
  check(formula, type);
  const std::int64_t columns = stream.size(-1), rows = stream.numel() / columns;
  const auto statistics = stream.options().dtype(compute_type(stream.scalar_type()));
  NormRows result{.sum = branch != nullptr ? at::empty_like(stream) : stream,
                  .y = at::empty(stream.sizes(), stream.options().dtype(type)),
                  .mean = formula.bias.defined() ? at::empty({rows}, statistics) : at::Tensor(),
                  .rstd = at::empty({rows}, statistics)};
  const at::Tensor added = branch != nullptr ? branch->x : at::Tensor();
  const OpScope scope("megatron::norm_rows", {stream, added, result.y});
  Joined<kernels::NormArguments> arguments{.norm = {.x = result.sum.const_data_ptr(),
                                                    .weight = formula.weight.const_data_ptr(),
                                                    .bias = data_or_null(formula.bias),
                                                    .y = result.y.mutable_data_ptr(),
                                                    .mean = mutable_or_null(result.mean),
                                                    .rstd = result.rstd.mutable_data_ptr(),
                                                    .x_type = kernel_type(stream.scalar_type()),
                                                    .y_type = kernel_type(type),
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .epsilon = formula.epsilon,
                                                    .offset = formula.offset},
                                           .branch = {},
                                           .has_branch = branch != nullptr};
  if (branch != nullptr) {
    arguments.branch = {.x = added.const_data_ptr(),
                        .residual = stream.const_data_ptr(),
                        .out = result.sum.mutable_data_ptr(),
                        .x_type = kernel_type(added.scalar_type()),
                        .out_type = kernel_type(stream.scalar_type()),
                        .rows = rows,
                        .columns = columns,
                        .coordinates = branch->coordinates,
                        .rule = branch->rule};
  }
  parallel_kernel(sum_and_norm, arguments, rows, columns);
  return result;
}

NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& formula) {
  check(formula, dy.scalar_type());
  const at::Tensor& x = rows.sum;
  const std::int64_t columns = x.size(-1), count = x.numel() / columns,
                     blocks = kernels::row_blocks(count);
  const bool copies =
      branch != nullptr && (branch->rule.threshold != 0 || branch->rule.scale != 1 ||
                            dy.scalar_type() != x.scalar_type());
  NormGradients result{.dsum = at::empty_like(x),
                       .dbranch = copies ? at::empty(x.sizes(), dy.options()) : at::Tensor(),
                       .dweight = {},
                       .dbias = {}};
  const at::Tensor weight_blocks = at::empty({blocks, columns}, rows.rstd.options()),
                   bias_blocks = rows.mean.defined() ? at::empty_like(weight_blocks) : at::Tensor();
  const OpScope scope("megatron::norm_rows_backward",
                      {dy, residual_grad, x, result.dsum, result.dbranch});
  const auto x_type = kernel_type(x.scalar_type()), y_type = kernel_type(dy.scalar_type());
  Joined<kernels::NormBackwardArguments> arguments{
      .norm = {.dy = dy.const_data_ptr(),
               .x = x.const_data_ptr(),
               .weight = formula.weight.const_data_ptr(),
               .mean = data_or_null(rows.mean),
               .rstd = rows.rstd.const_data_ptr(),
               .residual_grad = data_or_null(residual_grad),
               .dx = result.dsum.mutable_data_ptr(),
               .weight_blocks = weight_blocks.mutable_data_ptr(),
               .bias_blocks = mutable_or_null(bias_blocks),
               .x_type = x_type,
               .y_type = y_type,
               .rows = count,
               .columns = columns,
               .offset = formula.offset},
      .branch = {},
      .has_branch = copies};
  if (copies) {
    arguments.branch = {.x = result.dsum.const_data_ptr(),
                        .residual = nullptr,
                        .out = result.dbranch.mutable_data_ptr(),
                        .x_type = x_type,
                        .out_type = y_type,
                        .rows = count,
                        .columns = columns,
                        .coordinates = branch->coordinates,
                        .rule = branch->rule};
  }
  parallel_kernel(gradient_and_dropout, arguments, blocks, kernels::kRowsPerBlock * columns);
  if (branch != nullptr && !copies) result.dbranch = result.dsum;
  result.dweight = reduce_row_blocks(weight_blocks);
  if (bias_blocks.defined()) result.dbias = reduce_row_blocks(bias_blocks);
  return result;
}

}  // namespace megatron
