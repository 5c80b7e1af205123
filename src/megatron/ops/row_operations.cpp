#include "megatron/ops/row_operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <atomic>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

std::atomic<const kernels::RowOperations*>& cuda_slot() {
  static std::atomic<const kernels::RowOperations*> operations{nullptr};
  return operations;
}

/// The kernels of ATen's meta device, whose tensors have shapes but no data. They compute nothing.
constexpr kernels::RowOperations kMetaOperations{
    .dropout = [](const kernels::DropoutArguments&) {},
    .rms_norm = [](const kernels::RmsNormArguments&) {},
    .rms_norm_backward = [](const kernels::RmsNormBackwardArguments&) {},
    .rotary = [](const kernels::RotaryArguments&) {}};

/// Returns the kernel table of a device other than the CPU.
const kernels::RowOperations& accelerator_operations(const at::Tensor& x) {
  if (x.is_meta()) return kMetaOperations;
  const kernels::RowOperations* operations = cuda_slot().load(std::memory_order_acquire);
  MEGATRON_CHECK(x.is_cuda() && operations != nullptr, "tensors are on ", x.device().str(),
                 ", for which no plugin has provided kernels");
  return *operations;
}

/// Checks two dtypes of one kernel: they must be equal, or one must be float32 and the other 16
/// bits wide.
void check_pair(const at::Tensor& a, const at::Tensor& b) {
  const auto is_half = [](const at::Tensor& x) { return x.element_size() == 2; };
  const auto is_float = [](const at::Tensor& x) { return x.scalar_type() == c10::kFloat; };
  MEGATRON_CHECK(a.scalar_type() == b.scalar_type() || (is_float(a) && is_half(b)) ||
                     (is_half(a) && is_float(b)),
                 "row operations on ", c10::toString(a.scalar_type()), " with ",
                 c10::toString(b.scalar_type()));
}

}  // namespace

void register_cuda_row_operations(const kernels::RowOperations& operations) {
  cuda_slot().store(&operations, std::memory_order_release);
}

c10::ScalarType compute_type(c10::ScalarType storage) {
  return storage == c10::kDouble ? c10::kDouble : c10::kFloat;
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

void dropout_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& out,
                  const kernels::RowCoordinates& coordinates, const kernels::DropoutRule& rule) {
  if (x.numel() == 0) return;
  const OpScope scope("megatron::dropout_rows", {x, residual, out});
  check_pair(x, out);
  MEGATRON_CHECK(!residual.defined() || residual.scalar_type() == out.scalar_type(),
                 "a residual of another dtype than the sum");
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const kernels::DropoutArguments arguments{
      .x = x.const_data_ptr(),
      .residual = residual.defined() ? residual.const_data_ptr() : nullptr,
      .out = out.mutable_data_ptr(),
      .x_type = kernel_type(x.scalar_type()),
      .out_type = kernel_type(out.scalar_type()),
      .rows = rows,
      .columns = columns,
      .coordinates = coordinates,
      .rule = rule};
  if (!x.is_cpu()) return accelerator_operations(x).dropout(arguments);
  parallel_kernel(kernels::row_kernels().dropout, arguments, rows, columns);
}

RmsNormRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, c10::ScalarType type,
                          double epsilon, double offset) {
  if (x.is_cpu()) {
    const NormRows rows = norm_rows(
        x, nullptr, {.weight = weight, .bias = {}, .epsilon = epsilon, .offset = offset}, type);
    return {rows.y, rows.rstd};
  }
  const OpScope scope("megatron::rms_norm_rows", {x, weight, x});
  MEGATRON_CHECK(weight.scalar_type() == compute_type(type) && weight.is_contiguous(),
                 "weight of a norm");
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  RmsNormRows result{.y = at::empty(x.sizes(), x.options().dtype(type)),
                     .rstd = at::empty({rows}, x.options().dtype(compute_type(x.scalar_type())))};
  const kernels::RmsNormArguments arguments{.x = x.const_data_ptr(),
                                            .weight = weight.const_data_ptr(),
                                            .y = result.y.mutable_data_ptr(),
                                            .rstd = result.rstd.mutable_data_ptr(),
                                            .x_type = kernel_type(x.scalar_type()),
                                            .y_type = kernel_type(result.y.scalar_type()),
                                            .rows = rows,
                                            .columns = columns,
                                            .epsilon = epsilon,
                                            .offset = offset};
  accelerator_operations(x).rms_norm(arguments);
  return result;
}

RmsNormGradients rms_norm_rows_backward(const at::Tensor& dy, const at::Tensor& x,
                                        const at::Tensor& weight, const at::Tensor& rstd,
                                        double offset) {
  if (x.is_cpu()) {
    NormGradients gradients =
        norm_rows_backward(dy, {}, {.sum = x, .y = {}, .mean = {}, .rstd = rstd}, nullptr,
                           {.weight = weight, .bias = {}, .offset = offset});
    return {gradients.dsum, gradients.dweight};
  }
  const OpScope scope("megatron::rms_norm_rows_backward", {dy, x, weight, x});
  MEGATRON_CHECK(weight.scalar_type() == compute_type(dy.scalar_type()) && dy.is_contiguous() &&
                     x.is_contiguous(),
                 "gradient of a norm");
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  RmsNormGradients result{.dx = at::empty_like(x), .dweight = at::empty({columns}, rstd.options())};
  const kernels::RmsNormBackwardArguments arguments{.dy = dy.const_data_ptr(),
                                                    .x = x.const_data_ptr(),
                                                    .weight = weight.const_data_ptr(),
                                                    .rstd = rstd.const_data_ptr(),
                                                    .dx = result.dx.mutable_data_ptr(),
                                                    .dweight = result.dweight.mutable_data_ptr(),
                                                    .x_type = kernel_type(x.scalar_type()),
                                                    .y_type = kernel_type(dy.scalar_type()),
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .offset = offset};
  accelerator_operations(x).rms_norm_backward(arguments);
  return result;
}

namespace {

/// Returns the layout of [s, b, n, d] with unit last stride and evenly spaced heads, or of [s, b,
/// g, r, d].
kernels::HeadLayout layout_of(const at::Tensor& heads) {
  const bool grouped = heads.dim() == 5;
  return {.position = heads.stride(0),
          .sample = heads.stride(1),
          .group = heads.stride(2),
          .head = grouped ? heads.stride(3) : 0,
          .group_heads = grouped ? heads.size(3) : 1};
}

/// Rotates with an accelerator's kernel, which needs evenly spaced tokens.
at::Tensor rotated_evenly(const at::Tensor& x, const Rotation& rotation) {
  const std::int64_t s = x.size(0), b = x.size(1), n = x.size(2), d = x.size(3);
  // The stride of a dimension of size 1 is arbitrary, even in a tensor that reports itself
  // contiguous.
  const bool even = x.stride(3) == 1 && (b == 1 || s == 1 || x.stride(0) == b * x.stride(1));
  const at::Tensor from = even ? x : x.contiguous();
  at::Tensor out = at::empty({s, b, n, d}, x.options());
  accelerator_operations(x).rotary({.x = from.const_data_ptr(),
                                    .cos = rotation.cos.const_data_ptr(),
                                    .sin = rotation.sin.const_data_ptr(),
                                    .out = out.mutable_data_ptr(),
                                    .type = kernel_type(x.scalar_type()),
                                    .tokens = s * b,
                                    .heads = n,
                                    .head_dim = d,
                                    .rotary_dim = 2 * rotation.cos.size(1),
                                    .token_stride = !even    ? n * d
                                                    : b == 1 ? x.stride(0)
                                                             : x.stride(1),
                                    .head_stride = even ? x.stride(2) : d,
                                    .tokens_per_row = rotation.cos.size(0) == s ? b : 1,
                                    .interleaved = rotation.interleaved,
                                    .sign = rotation.sign});
  return out;
}

}  // namespace

void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation) {
  const at::Tensor source = from.stride(-1) == 1 ? from : from.contiguous();
  MEGATRON_CHECK(source.numel() == to.numel() && to.stride(-1) == 1 &&
                     source.scalar_type() == to.scalar_type(),
                 "heads of different shapes");
  if (to.numel() == 0) return;
  const std::int64_t b = to.size(1), tokens = to.size(0) * b, d = to.size(-1),
                     n = to.numel() / (tokens * d);
  kernels::HeadsArguments arguments{.from = source.const_data_ptr(),
                                    .to = to.mutable_data_ptr(),
                                    .from_layout = layout_of(source),
                                    .to_layout = layout_of(to),
                                    .type = kernel_type(to.scalar_type()),
                                    .tokens = tokens,
                                    .samples = b,
                                    .heads = n,
                                    .head_dim = d};
  if (rotation != nullptr) {
    arguments.cos = rotation->cos.const_data_ptr();
    arguments.sin = rotation->sin.const_data_ptr();
    arguments.rotary_dim = 2 * rotation->cos.size(1);
    arguments.tokens_per_row = rotation->cos.size(0) == to.size(0) ? b : 1;
    arguments.interleaved = rotation->interleaved;
    arguments.sign = rotation->sign;
  }
  parallel_kernel(kernels::row_kernels().heads, arguments, tokens, n * d);
}

at::Tensor rotary_rows(const at::Tensor& x, const Rotation& rotation) {
  const OpScope scope("megatron::rotary_rows", {x, rotation.cos, rotation.sin, x});
  if (!x.is_cpu()) return rotated_evenly(x, rotation);
  at::Tensor out = at::empty(x.sizes(), x.options());
  copy_heads(x, out, &rotation);
  return out;
}

}  // namespace megatron
