#include "megatron/ops/norm_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>

#include <algorithm>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/cuda_row_operations.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

void check_weight(const at::Tensor& weight, c10::ScalarType type) {
  MEGATRON_CHECK(weight.scalar_type() == compute_type(type) && weight.is_contiguous(),
                 "norm weight of ", weight.scalar_type(), " and strides ", weight.strides(),
                 " for ", type);
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

using Optional = std::optional<at::Tensor>;

/// Returns results without values. The sum is undefined without a branch.
NormRows allocate_rows(const at::Tensor& stream, const Optional& branch, const NormParams& params,
                       c10::ScalarType type, const DropoutSite& /*site*/) {
  const std::int64_t rows = stream.numel() / stream.size(-1);
  const auto statistics = stream.options().dtype(compute_type(stream.scalar_type()));
  return {branch ? at::empty_like(stream) : at::Tensor(),
          at::empty(stream.sizes(), stream.options().dtype(type)),
          params.bias.defined() ? at::empty({rows}, statistics) : at::Tensor(),
          at::empty({rows}, statistics)};
}

NormRows norm_on_cpu(const at::Tensor& given, const Optional& branch, const NormParams& params,
                     c10::ScalarType type, const DropoutSite& site) {
  const auto& [weight, bias, epsilon, offset] = params;
  check_weight(weight, type);
  const at::Tensor stream = given.contiguous(),
                   added = branch ? branch->contiguous() : at::Tensor();
  const std::int64_t columns = stream.size(-1), rows = stream.numel() / columns;
  const auto [sum, y, mean, rstd] = allocate_rows(stream, branch, params, type, site);
  Joined<kernels::NormArguments> arguments{.norm = {.x = (branch ? sum : stream).const_data_ptr(),
                                                    .weight = weight.const_data_ptr(),
                                                    .bias = data_or_null(bias),
                                                    .y = y.mutable_data_ptr(),
                                                    .mean = mutable_or_null(mean),
                                                    .rstd = rstd.mutable_data_ptr(),
                                                    .x_type = kernel_type(stream.scalar_type()),
                                                    .y_type = kernel_type(type),
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .epsilon = epsilon,
                                                    .offset = offset},
                                           .branch = {},
                                           .has_branch = branch.has_value()};
  if (branch) {
    arguments.branch = {.x = added.const_data_ptr(),
                        .residual = stream.const_data_ptr(),
                        .out = sum.mutable_data_ptr(),
                        .x_type = kernel_type(added.scalar_type()),
                        .out_type = kernel_type(stream.scalar_type()),
                        .rows = rows,
                        .columns = columns,
                        .coordinates = hidden_coordinates(stream, site),
                        .rule = dropout_rule(site)};
  }
  parallel_kernel(sum_and_norm, arguments, rows, columns);
  return {sum, y, mean, rstd};
}

NormGradients norm_backward_on_cpu(const at::Tensor& gradient, const Optional& residual_grad,
                                   const at::Tensor& x, const Optional& mean,
                                   const at::Tensor& rstd, const NormParams& params,
                                   bool has_branch, const DropoutSite& site) {
  const at::Tensor dy = gradient.contiguous(),
                   residual = residual_grad ? residual_grad->contiguous() : at::Tensor();
  check_weight(params.weight, dy.scalar_type());
  const std::int64_t columns = x.size(-1), count = x.numel() / columns,
                     blocks = kernels::row_blocks(count);
  const bool copies = has_branch && (site.active() || dy.scalar_type() != x.scalar_type());
  const at::Tensor dsum = at::empty_like(x),
                   dbranch = copies ? at::empty(x.sizes(), dy.options()) : at::Tensor();
  const at::Tensor weight_blocks = at::empty({blocks, columns}, rstd.options()),
                   bias_blocks = mean ? at::empty_like(weight_blocks) : at::Tensor();
  const auto x_type = kernel_type(x.scalar_type()), y_type = kernel_type(dy.scalar_type());
  Joined<kernels::NormBackwardArguments> arguments{
      .norm = {.dy = dy.const_data_ptr(),
               .x = x.const_data_ptr(),
               .weight = params.weight.const_data_ptr(),
               .mean = mean ? mean->const_data_ptr() : nullptr,
               .rstd = rstd.const_data_ptr(),
               .residual_grad = data_or_null(residual),
               .dx = dsum.mutable_data_ptr(),
               .weight_blocks = weight_blocks.mutable_data_ptr(),
               .bias_blocks = mutable_or_null(bias_blocks),
               .x_type = x_type,
               .y_type = y_type,
               .rows = count,
               .columns = columns,
               .offset = params.offset},
      .branch = {},
      .has_branch = copies};
  if (copies) {
    arguments.branch = {.x = dsum.const_data_ptr(),
                        .residual = nullptr,
                        .out = dbranch.mutable_data_ptr(),
                        .x_type = x_type,
                        .out_type = y_type,
                        .rows = count,
                        .columns = columns,
                        .coordinates = hidden_coordinates(x, site),
                        .rule = dropout_rule(site)};
  }
  parallel_kernel(gradient_and_dropout, arguments, blocks, kernels::kRowsPerBlock * columns);
  return {dsum, dbranch, reduce_row_blocks(weight_blocks),
          bias_blocks.defined() ? reduce_row_blocks(bias_blocks) : at::Tensor()};
}

NormGradients backward_on_meta(const at::Tensor& dy, const Optional& /*residual_grad*/,
                               const at::Tensor& x, const Optional& mean, const at::Tensor& rstd,
                               const NormParams& /*params*/, bool has_branch,
                               const DropoutSite& /*site*/) {
  const at::Tensor dweight = at::empty({x.size(-1)}, rstd.options());
  return {at::empty_like(x), has_branch ? at::empty(x.sizes(), dy.options()) : at::Tensor(),
          dweight, mean ? at::empty_like(dweight) : at::Tensor()};
}

struct Rms {
  /// Returns {y, rstd}.
  static std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const NormParams& params,
                                                   c10::ScalarType type) {
    const at::Tensor wide = x.to(params.weight.scalar_type());
    const at::Tensor rstd = at::rsqrt(wide.square().mean({-1}, /*keepdim=*/true) + params.epsilon);
    return {(wide * rstd * (params.weight + params.offset)).to(type), rstd.reshape({-1})};
  }

  /// Returns {dx in compute_type(), dweight}.
  static std::pair<at::Tensor, at::Tensor> backward(const at::Tensor& dy, const at::Tensor& x,
                                                    const NormParams& params,
                                                    const at::Tensor& rstd) {
    const at::Tensor& weight = params.weight;
    auto shape = x.sizes().vec();
    shape.back() = 1;
    const at::Tensor r = rstd.view(shape), scaled = x.to(weight.scalar_type()) * r,
                     wide = dy.to(weight.scalar_type()), g = wide * (weight + params.offset);
    const at::Tensor dx = (g - scaled * (g * scaled).mean({-1}, /*keepdim=*/true)) * r;
    return {dx, (wide * scaled).reshape({-1, x.size(-1)}).sum(0)};
  }
};

/// RMSNorm by the CUDA plugin's kernels.
struct RmsOnCuda {
  static std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& given,
                                                   const NormParams& params, c10::ScalarType type) {
    check_weight(params.weight, type);
    const at::Tensor x = given.contiguous();
    const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
    at::Tensor y = at::empty(x.sizes(), x.options().dtype(type)),
               rstd = at::empty({rows}, x.options().dtype(compute_type(x.scalar_type())));
    cuda_row_operations().rms_norm({.x = x.const_data_ptr(),
                                    .weight = params.weight.const_data_ptr(),
                                    .y = y.mutable_data_ptr(),
                                    .rstd = rstd.mutable_data_ptr(),
                                    .x_type = kernel_type(x.scalar_type()),
                                    .y_type = kernel_type(type),
                                    .rows = rows,
                                    .columns = columns,
                                    .epsilon = params.epsilon,
                                    .offset = params.offset});
    return {y, rstd};
  }

  static std::pair<at::Tensor, at::Tensor> backward(const at::Tensor& gradient,
                                                    const at::Tensor& given,
                                                    const NormParams& params,
                                                    const at::Tensor& rstd) {
    const at::Tensor dy = gradient.contiguous(), x = given.contiguous();
    check_weight(params.weight, dy.scalar_type());
    const std::int64_t columns = x.size(-1);
    at::Tensor dx = at::empty_like(x), dweight = at::empty({columns}, rstd.options());
    cuda_row_operations().rms_norm_backward({.dy = dy.const_data_ptr(),
                                             .x = x.const_data_ptr(),
                                             .weight = params.weight.const_data_ptr(),
                                             .rstd = rstd.const_data_ptr(),
                                             .dx = dx.mutable_data_ptr(),
                                             .dweight = dweight.mutable_data_ptr(),
                                             .x_type = kernel_type(x.scalar_type()),
                                             .y_type = kernel_type(dy.scalar_type()),
                                             .rows = x.numel() / columns,
                                             .columns = columns,
                                             .offset = params.offset});
    return {dx, dweight};
  }
};

/// Norms by ATen's LayerNorm or by the RMSNorm of `RmsNorm`, one operator after the other.
template <class RmsNorm>
NormRows norm_by_steps(const at::Tensor& stream, const Optional& branch, const NormParams& params,
                       c10::ScalarType type, const DropoutSite& site) {
  const at::Tensor sum = branch ? dropout_add(*branch, stream, site) : at::Tensor();
  const at::Tensor& x = branch ? sum : stream;
  const auto& [weight, bias, epsilon, offset] = params;
  if (!bias.defined()) {
    auto [y, rstd] = RmsNorm::forward(x, params, type);
    return {sum, y, at::Tensor(), rstd};
  }
  auto [y, mean, rstd] = at::native_layer_norm(x.to(weight.scalar_type()), {x.size(-1)},
                                               weight + offset, bias, epsilon);
  return {sum, y.to(type), mean, rstd};
}

template <class RmsNorm>
NormGradients norm_backward_by_steps(const at::Tensor& dy, const Optional& residual_grad,
                                     const at::Tensor& x, const Optional& mean,
                                     const at::Tensor& rstd, const NormParams& params,
                                     bool has_branch, const DropoutSite& site) {
  const auto& [weight, bias, epsilon, offset] = params;
  at::Tensor dx, dweight, dbias;
  if (mean) {
    const at::Tensor wide = x.to(weight.scalar_type());  // ATen sums dweight in the dtype of x
    std::tie(dx, dweight, dbias) = at::native_layer_norm_backward(
        dy.to(wide.scalar_type()).contiguous(), wide, {wide.size(-1)}, *mean, rstd, weight + offset,
        bias, {true, true, true});
  } else {
    std::tie(dx, dweight) = RmsNorm::backward(dy, x, params, rstd);
  }
  if (residual_grad) dx = dx + *residual_grad;
  const at::Tensor dsum = dx.to(x.scalar_type());
  const at::Tensor dbranch = has_branch ? dropout_as(dsum, dy.scalar_type(), site) : at::Tensor();
  return {dsum, dbranch, dweight, dbias};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<norm_on_cpu>(library, "norm_rows");
  register_kernel<norm_by_steps<RmsOnCuda>>(library, "norm_rows", c10::DispatchKey::CUDA);
  register_kernel<norm_by_steps<Rms>>(library, "norm_rows", kAnyDevice);
  register_kernel<allocate_rows>(library, "norm_rows", kMetaDevice);
  define_operator<norm_backward_on_cpu>(library, "norm_rows_backward");
  register_kernel<norm_backward_by_steps<RmsOnCuda>>(library, "norm_rows_backward",
                                                     c10::DispatchKey::CUDA);
  register_kernel<norm_backward_by_steps<Rms>>(library, "norm_rows_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "norm_rows_backward", kMetaDevice);
}

const DropoutBranch kNoBranch;

}  // namespace

NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& params,
                   c10::ScalarType type) {
  static const Operator<norm_on_cpu> op("megatron::norm_rows");
  const auto& [added, site] = branch != nullptr ? *branch : kNoBranch;
  NormRows rows = op(stream, optional_tensor(added), params, type, site);
  if (branch == nullptr) rows.sum = stream;
  return rows;
}

NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& params) {
  static const Operator<norm_backward_on_cpu> op("megatron::norm_rows_backward");
  const bool has_branch = branch != nullptr;
  NormGradients d = op(dy, optional_tensor(residual_grad), rows.sum, optional_tensor(rows.mean),
                       rows.rstd, params, has_branch, (has_branch ? *branch : kNoBranch).site);
  if (has_branch && !d.dbranch.defined()) d.dbranch = d.dsum;
  return d;
}

}  // namespace megatron
