#include "megatron/ops/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gated_norm.h"
#include "megatron/base/error.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

struct GatedNormGradients {
  at::Tensor dx, dz, dweight;
  static auto members(auto& d) { return std::tie(d.dx, d.dz, d.dweight); }
};

/// Returns [s, b, …, columns] as rows [s, b, columns of all], in place where the memory allows.
at::Tensor rows_of(const at::Tensor& x) { return with_unit_stride(x.dim() > 3 ? x.flatten(2) : x); }

kernels::RowsView view_of(const at::Tensor& rows) {
  return {rows.const_data_ptr(), rows.stride(0), rows.stride(1)};
}

/// Arguments that point to x and z as rows_of() and to the widened weight.
kernels::GatedNormArguments arguments_of(const at::Tensor& x, const at::Tensor& z,
                                         const at::Tensor& weight,
                                         const GatedNormOptions& options) {
  return {.type = kernel_type(x.scalar_type()),
          .x = view_of(x),
          .z = view_of(z),
          .b = x.size(1),
          .rows = x.size(0) * x.size(1),
          .columns = x.size(2),
          .group_size = options.group_size,
          .weight = weight.const_data_ptr(),
          .shares_weight = weight.size(0) < x.size(2),
          .norm_before_gate = options.norm_before_gate,
          .epsilon = options.epsilon,
          .offset = options.offset};
}

at::Tensor widened(const at::Tensor& weight, const at::Tensor& x) {
  return weight.to(compute_type(x.scalar_type())).contiguous();
}

at::Tensor forward_on_cpu(const at::Tensor& given_x, const at::Tensor& given_z,
                          const at::Tensor& given_weight, const GatedNormOptions& options) {
  const at::Tensor x = rows_of(given_x), z = rows_of(given_z), weight = widened(given_weight, x);
  at::Tensor y = at::empty(given_x.sizes(), x.options());
  const kernels::GatedNormForwardArguments arguments{arguments_of(x, z, weight, options),
                                                     y.mutable_data_ptr()};
  parallel_kernel(kernels::gated_norm_kernels().forward, arguments, arguments.rows,
                  arguments.columns);
  return y;
}

GatedNormGradients backward_on_cpu(const at::Tensor& gradient, const at::Tensor& given_x,
                                   const at::Tensor& given_z, const at::Tensor& given_weight,
                                   const GatedNormOptions& options) {
  const at::Tensor x = rows_of(given_x), z = rows_of(given_z), weight = widened(given_weight, x),
                   dy = gradient.contiguous(), dx = at::empty(given_x.sizes(), x.options()),
                   dz = at::empty(given_x.sizes(), x.options());
  const std::int64_t rows = x.size(0) * x.size(1), blocks = kernels::row_blocks(rows);
  const at::Tensor sums = at::empty({blocks, x.size(2)}, weight.options());
  const kernels::GatedNormBackwardArguments arguments{
      arguments_of(x, z, weight, options), dy.const_data_ptr(), dx.mutable_data_ptr(),
      dz.mutable_data_ptr(), sums.mutable_data_ptr()};
  parallel_kernel(kernels::gated_norm_kernels().backward, arguments, blocks,
                  kernels::kRowsPerBlock * arguments.columns);
  return {dx, dz, reduce_row_blocks(sums.view({-1, weight.size(0)}))};
}

at::Tensor forward_by_aten(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                           const GatedNormOptions& options) {
  const auto type = compute_type(x.scalar_type());
  const at::Tensor gate = at::silu(z.to(type)), wide = x.to(type);
  const at::Tensor h =
      (options.norm_before_gate ? wide : wide * gate).unflatten(-1, {-1, options.group_size});
  const at::Tensor normalised =
      h * at::rsqrt(h.square().mean({-1}, /*keepdim=*/true) + options.epsilon);
  const at::Tensor scaled = normalised.flatten(-2).unflatten(-1, {-1, weight.size(0)}) *
                            (weight.to(type) + options.offset);
  const at::Tensor y = scaled.flatten(-2);
  return (options.norm_before_gate ? y * gate : y).to(x.scalar_type());
}

GatedNormGradients backward_by_aten(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                                    const at::Tensor& weight, const GatedNormOptions& options) {
  const Tensors d = gradients_by_autograd(
      [&](const Tensors& t) { return forward_by_aten(t[0], t[1], t[2], options); },
      {x, z, weight.to(compute_type(x.scalar_type()))}, {true, true, true}, dy);
  return {d[0], d[1], d[2]};
}

at::Tensor forward_on_meta(const at::Tensor& x, const at::Tensor& /*z*/,
                           const at::Tensor& /*weight*/, const GatedNormOptions& /*options*/) {
  return at::empty(x.sizes(), x.options());
}

GatedNormGradients backward_on_meta(const at::Tensor& /*dy*/, const at::Tensor& x,
                                    const at::Tensor& /*z*/, const at::Tensor& weight,
                                    const GatedNormOptions& /*options*/) {
  return {at::empty(x.sizes(), x.options()), at::empty(x.sizes(), x.options()),
          at::empty(weight.sizes(), x.options().dtype(compute_type(x.scalar_type())))};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<forward_on_cpu>(library, "gated_norm");
  register_kernel<forward_by_aten>(library, "gated_norm", kAnyDevice);
  register_kernel<forward_on_meta>(library, "gated_norm", kMetaDevice);
  define_operator<backward_on_cpu>(library, "gated_norm_backward");
  register_kernel<backward_by_aten>(library, "gated_norm_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "gated_norm_backward", kMetaDevice);
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                      const GatedNormOptions& options) {
  static const Operator<forward_on_cpu> op("megatron::gated_norm");
  // Rows of several weights, such as heads, are normalised by the whole weight.
  const std::int64_t width = weight.numel(), columns = c10::multiply_integers(x.sizes().slice(2));
  MEGATRON_CHECK(x.dim() >= 3 && z.sizes() == x.sizes() && z.scalar_type() == x.scalar_type() &&
                     x.size(-1) % width == 0 && width % options.group_size == 0 &&
                     (width == columns || width == options.group_size),
                 "a gated norm of ", x.sizes(), " and ", z.sizes(), " with ", width,
                 " weights and groups of ", options.group_size);
  Recording recording({.name = "GatedNormBackward"}, {x, z, weight});
  return recording.finish(
      op(x, z, weight, options), {x, z, weight}, [options](BackwardPass& pass) -> Tensors {
        static const Operator<backward_on_cpu> backward("megatron::gated_norm_backward");
        const Tensors& saved = pass.saved;
        const GatedNormGradients d =
            backward(pass.gradients[0], saved[0], saved[1], saved[2], options);
        return {d.dx, d.dz, d.dweight};
      });
}

}  // namespace megatron
