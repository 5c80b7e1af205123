#include "megatron/transformer/row_operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <atomic>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/transformer/kernel_type.h"
#include "megatron/transformer/on_threads.h"
#include "megatron/transformer/op_scope.h"

namespace megatron {
namespace {

std::atomic<const kernels::RowOperations*>& cuda_slot() {
  static std::atomic<const kernels::RowOperations*> operations{nullptr};
  return operations;
}

/// On ATen's meta device, which has shapes and no numbers, nothing is computed.
constexpr kernels::RowOperations kMetaOperations{.dropout = [](const kernels::DropoutArguments&) {},
                                                 .rms_norm = [](const kernels::RmsNormArguments&) {},
                                                 .rms_norm_backward = [](const kernels::RmsNormBackwardArguments&) {},
                                                 .rotary = [](const kernels::RotaryArguments&) {}};

/// The kernels of a device that is not the processor.
const kernels::RowOperations& accelerator_operations(const at::Tensor& x) {
  if (x.is_meta()) return kMetaOperations;
  const kernels::RowOperations* operations = cuda_slot().load(std::memory_order_acquire);
  MEGATRON_CHECK(x.is_cuda() && operations != nullptr, "tensors are on ", x.device().str(), ", for which no plugin has provided kernels");
  return *operations;
}

/// A kernel reads and writes two dtypes together when they are equal or one is float32 and the other 16 bits wide.
void check_pair(const at::Tensor& a, const at::Tensor& b) {
  const auto is_half = [](const at::Tensor& x) { return x.element_size() == 2; };
  const auto is_float = [](const at::Tensor& x) { return x.scalar_type() == c10::kFloat; };
  MEGATRON_CHECK(a.scalar_type() == b.scalar_type() || (is_float(a) && is_half(b)) || (is_half(a) && is_float(b)), "row operations on ",
                 c10::toString(a.scalar_type()), " with ", c10::toString(b.scalar_type()));
}

}  // namespace

void provide_cuda_row_operations(const kernels::RowOperations& operations) { cuda_slot().store(&operations, std::memory_order_release); }

c10::ScalarType compute_type(c10::ScalarType storage) { return storage == c10::kDouble ? c10::kDouble : c10::kFloat; }

at::Tensor added_row_blocks(const at::Tensor& blocks) {
  at::Tensor sums = at::empty({blocks.size(1)}, blocks.options());
  on_threads(kernels::add_row_blocks,
             kernels::ColumnSumsArguments{.blocks = blocks.const_data_ptr(),
                                          .sums = sums.mutable_data_ptr(),
                                          .type = kernel_type(blocks.scalar_type()),
                                          .num_blocks = blocks.size(0),
                                          .columns = blocks.size(1)},
             blocks.size(1), blocks.size(0), /*multiple=*/64);
  return sums;
}

void dropout_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& out, const kernels::RowCoordinates& coordinates,
                  const kernels::DropoutRule& rule) {
  if (x.numel() == 0) return;
  const OpScope scope("megatron::dropout_rows", {x, residual, out});
  check_pair(x, out);
  MEGATRON_CHECK(!residual.defined() || residual.scalar_type() == out.scalar_type(), "a residual of another dtype than the sum");
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const kernels::DropoutArguments arguments{.x = x.const_data_ptr(),
                                            .residual = residual.defined() ? residual.const_data_ptr() : nullptr,
                                            .out = out.mutable_data_ptr(),
                                            .x_type = kernel_type(x.scalar_type()),
                                            .out_type = kernel_type(out.scalar_type()),
                                            .rows = rows,
                                            .columns = columns,
                                            .coordinates = coordinates,
                                            .rule = rule};
  if (!x.is_cpu()) return accelerator_operations(x).dropout(arguments);
  on_threads(kernels::row_kernels().dropout, arguments, rows, columns);
}

RmsNormRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, c10::ScalarType type, double epsilon, double offset) {
  const OpScope scope("megatron::rms_norm_rows", {x, weight, x});
  MEGATRON_CHECK(weight.scalar_type() == compute_type(type) && weight.is_contiguous(), "weight of a norm");
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  RmsNormRows result{.y = at::empty(x.sizes(), x.options().dtype(type)), .rstd = at::empty({rows}, x.options().dtype(compute_type(x.scalar_type())))};
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
  if (!x.is_cpu()) {
    accelerator_operations(x).rms_norm(arguments);
  } else {
    on_threads(kernels::row_kernels().rms_norm, arguments, rows, columns);
  }
  return result;
}

RmsNormGradients rms_norm_rows_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, double offset) {
  const OpScope scope("megatron::rms_norm_rows_backward", {dy, x, weight, x});
  MEGATRON_CHECK(weight.scalar_type() == compute_type(dy.scalar_type()) && dy.is_contiguous() && x.is_contiguous(), "gradient of a norm");
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
  if (!x.is_cpu()) {
    accelerator_operations(x).rms_norm_backward(arguments);
  } else {
    on_threads(kernels::row_kernels().rms_norm_backward_input, arguments, rows, columns);
    on_threads(kernels::row_kernels().rms_norm_backward_weight, arguments, columns, rows, /*multiple=*/64);
  }
  return result;
}

at::Tensor rotary_rows(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool interleaved, double sign) {
  const OpScope scope("megatron::rotary_rows", {x, cos, sin, x});
  const std::int64_t s = x.size(0), b = x.size(1), n = x.size(2), d = x.size(3);
  // Tokens must be evenly spaced. The stride of a dimension of one element means nothing, also in a tensor that calls itself contiguous.
  const bool even = x.stride(3) == 1 && (b == 1 || s == 1 || x.stride(0) == b * x.stride(1));
  const at::Tensor from = even ? x : x.contiguous();
  at::Tensor out = at::empty({s, b, n, d}, x.options());
  const kernels::RotaryArguments arguments{.x = from.const_data_ptr(),
                                           .cos = cos.const_data_ptr(),
                                           .sin = sin.const_data_ptr(),
                                           .out = out.mutable_data_ptr(),
                                           .type = kernel_type(x.scalar_type()),
                                           .tokens = s * b,
                                           .heads = n,
                                           .head_dim = d,
                                           .rotary_dim = 2 * cos.size(1),
                                           .token_stride = !even    ? n * d
                                                           : b == 1 ? x.stride(0)
                                                                    : x.stride(1),
                                           .head_stride = even ? x.stride(2) : d,
                                           .tokens_per_row = cos.size(0) == s ? b : 1,
                                           .interleaved = interleaved,
                                           .sign = sign};
  if (!x.is_cpu()) {
    accelerator_operations(x).rotary(arguments);
  } else {
    on_threads(kernels::row_kernels().rotary, arguments, arguments.tokens, n * d);
  }
  return out;
}

}  // namespace megatron
