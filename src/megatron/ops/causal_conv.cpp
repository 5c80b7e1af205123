#include "megatron/ops/causal_conv.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <tuple>

#include "kernels/cpu/causal_conv.h"
#include "megatron/base/error.h"
#include "megatron/config/recurrent_config.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

static_assert(kMostConvTaps == kernels::kConvTaps);

/// The weights and the state of a call. Tensors may be undefined, but for the weight.
struct ConvParams {
  at::Tensor weight, bias, initial_states;
  bool silu = true;
  static auto members(auto& p) { return std::tie(p.weight, p.bias, p.initial_states, p.silu); }
};

struct ConvGradients {
  at::Tensor dx, dweight, dbias;
  static auto members(auto& d) { return std::tie(d.dx, d.dweight, d.dbias); }
};

/// Tensors in the form that the kernels read, and arguments that point to them.
struct Readable {
  Readable(const at::Tensor& given, at::IntArrayRef numbers, const ConvParams& params)
      : x(with_unit_stride(given)),
        weight(params.weight.to(compute_type(x.scalar_type())).t().contiguous()),
        bias(params.bias.defined() ? params.bias.to(weight.scalar_type()).contiguous()
                                   : at::Tensor()),
        initial_states(params.initial_states.defined() ? params.initial_states.contiguous()
                                                       : at::Tensor()),
        pieces(pieces_of_numbers(numbers)) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (std::int64_t row = 0; row < pieces[i].count; row += kernels::kConvBlockRows)
        blocks.push_back({static_cast<std::int64_t>(i), row,
                          std::min(row + kernels::kConvBlockRows, pieces[i].count)});
    }
    arguments = {.type = kernel_type(x.scalar_type()),
                 .x = x.const_data_ptr(),
                 .row_stride = x.stride(0),
                 .column_stride = x.stride(1),
                 .b = x.size(1),
                 .channels = x.size(2),
                 .taps = weight.size(0),
                 .silu = params.silu,
                 .weight = weight.const_data_ptr(),
                 .bias = data_or_null(bias),
                 .initial_states = data_or_null(initial_states),
                 .pieces = pieces.data(),
                 .blocks = blocks.data()};
  }
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks.size()); }
  std::int64_t block_elements() const { return kernels::kConvBlockRows * x.size(2); }

  at::Tensor x, weight, bias, initial_states;
  RowPieces pieces;
  std::vector<kernels::ConvBlock> blocks;
  kernels::CausalConvArguments arguments;
};

at::Tensor empty_states(const at::Tensor& x, const ConvParams& params, std::size_t pieces) {
  return at::empty({static_cast<std::int64_t>(pieces), x.size(2), params.weight.size(1) - 1},
                   x.options());
}

CausalConvResult forward_on_cpu(const at::Tensor& x, at::IntArrayRef numbers,
                                const ConvParams& params, bool wants_final_states) {
  const Readable call(x, numbers, params);
  CausalConvResult result{.out = empty_rows(call.pieces, x, x.sizes().slice(2), x.scalar_type()),
                          .final_states = wants_final_states
                                              ? empty_states(x, params, call.pieces.size())
                                              : at::Tensor()};
  parallel_kernel(kernels::causal_conv_kernels().forward,
                  kernels::CausalConvForwardArguments{call.arguments, result.out.mutable_data_ptr(),
                                                      mutable_or_null(result.final_states)},
                  call.num_blocks(), call.block_elements());
  return result;
}

ConvGradients backward_on_cpu(const at::Tensor& gradient, const at::Tensor& x,
                              at::IntArrayRef numbers, const ConvParams& params) {
  const Readable call(x, numbers, params);
  const at::Tensor dout = gradient.contiguous(),
                   dx = empty_rows(call.pieces, x, x.sizes().slice(2), x.scalar_type());
  const std::int64_t taps = call.arguments.taps, channels = call.arguments.channels;
  const at::Tensor blocks =
      at::empty({call.num_blocks(), (taps + 1) * channels}, call.weight.options());
  parallel_kernel(
      kernels::causal_conv_kernels().backward,
      kernels::CausalConvBackwardArguments{call.arguments, dout.const_data_ptr(),
                                           dx.mutable_data_ptr(), blocks.mutable_data_ptr()},
      call.num_blocks(), call.block_elements());
  const at::Tensor sums = reduce_row_blocks(blocks).view({taps + 1, channels});
  return {dx, sums.narrow(0, 0, taps).t().contiguous(),
          params.bias.defined() ? sums[taps].clone() : at::Tensor()};
}

CausalConvResult forward_by_aten(const at::Tensor& x, at::IntArrayRef numbers,
                                 const ConvParams& params, bool wants_final_states) {
  const at::Tensor weight = params.weight.to(compute_type(x.scalar_type()));
  const std::int64_t taps = weight.size(1);
  const at::Tensor out = at::zeros(x.sizes(), x.options());
  const RowPieces pieces = pieces_of_numbers(numbers);
  const at::Tensor states =
      params.initial_states.defined()
          ? params.initial_states
          : at::zeros({static_cast<std::int64_t>(pieces.size()), x.size(2), taps - 1}, x.options());
  Tensors last;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& [column, row, count, position] = pieces[i];
    const at::Tensor rows = at::cat({states[static_cast<std::int64_t>(i)].t(),
                                     x.select(1, column).narrow(0, row, count)})
                                .to(weight.scalar_type());
    at::Tensor z = rows.narrow(0, 0, count) * weight.select(1, 0);
    for (std::int64_t t = 1; t < taps; ++t) z = z + rows.narrow(0, t, count) * weight.select(1, t);
    if (params.bias.defined()) z = z + params.bias.to(z.scalar_type());
    out.select(1, column).narrow(0, row, count).copy_(params.silu ? at::silu(z) : z);
    last.push_back(rows.narrow(0, count, taps - 1).t().to(x.scalar_type()).unsqueeze(0));
  }
  return {out, wants_final_states ? at::cat(last) : at::Tensor()};
}

ConvGradients backward_by_aten(const at::Tensor& dout, const at::Tensor& x, at::IntArrayRef numbers,
                               const ConvParams& params) {
  const auto wide = compute_type(x.scalar_type());
  Tensors inputs{x, params.weight.to(wide)};
  if (params.bias.defined()) inputs.push_back(params.bias.to(wide));
  const auto forward = [&](const Tensors& t) {
    return forward_by_aten(t[0], numbers,
                           {.weight = t[1],
                            .bias = t.size() > 2 ? t[2] : at::Tensor(),
                            .initial_states = params.initial_states,
                            .silu = params.silu},
                           /*wants_final_states=*/false)
        .out;
  };
  Tensors d = gradients_by_autograd(forward, inputs, std::vector<bool>(inputs.size(), true), dout);
  d.resize(3);
  return {d[0], d[1], d[2]};
}

CausalConvResult forward_on_meta(const at::Tensor& x, at::IntArrayRef numbers,
                                 const ConvParams& params, bool wants_final_states) {
  return {at::empty(x.sizes(), x.options()),
          wants_final_states ? empty_states(x, params, numbers.size() / 4) : at::Tensor()};
}

ConvGradients backward_on_meta(const at::Tensor& /*dout*/, const at::Tensor& x,
                               at::IntArrayRef /*numbers*/, const ConvParams& params) {
  const auto wide = x.options().dtype(compute_type(x.scalar_type()));
  return {at::empty(x.sizes(), x.options()), at::empty(params.weight.sizes(), wide),
          params.bias.defined() ? at::empty(params.bias.sizes(), wide) : at::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<forward_on_cpu>(library, "causal_conv");
  register_kernel<forward_by_aten>(library, "causal_conv", kAnyDevice);
  register_kernel<forward_on_meta>(library, "causal_conv", kMetaDevice);
  define_operator<backward_on_cpu>(library, "causal_conv_backward");
  register_kernel<backward_by_aten>(library, "causal_conv_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "causal_conv_backward", kMetaDevice);
}

}  // namespace

CausalConvResult causal_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const CausalConvOptions& options) {
  static const Operator<forward_on_cpu> op("megatron::causal_conv");
  MEGATRON_CHECK(x.dim() == 3 && weight.dim() == 2 && weight.size(0) == x.size(2) &&
                     weight.size(1) >= 1 && weight.size(1) <= kMostConvTaps &&
                     (!bias.defined() || bias.numel() == x.size(2)),
                 "a convolution of ", x.sizes(), " with weights ", weight.sizes());
  const std::vector<std::int64_t> numbers = flat_pieces(options.pieces, x);
  const at::Tensor& states = options.initial_states;
  MEGATRON_CHECK(
      !states.defined() ||
          (states.sizes() == at::IntArrayRef({static_cast<std::int64_t>(numbers.size()) / 4,
                                              x.size(2), weight.size(1) - 1}) &&
           states.scalar_type() == x.scalar_type()),
      "the states of a convolution of ", numbers.size() / 4, " pieces of ", x.sizes());
  Recording recording({.name = "CausalConvBackward"}, {x, weight, bias});
  CausalConvResult result =
      op(x, numbers, {weight, bias, states, options.silu}, options.wants_final_states);
  result.out = recording.finish(
      result.out, {x, weight, bias, states},
      [numbers, silu = options.silu](BackwardPass& pass) -> Tensors {
        static const Operator<backward_on_cpu> backward("megatron::causal_conv_backward");
        const Tensors& saved = pass.saved;
        const ConvGradients d =
            backward(pass.gradients[0], saved[0], numbers, {saved[1], saved[2], saved[3], silu});
        return {d.dx, d.dweight, d.dbias};
      });
  return result;
}

}  // namespace megatron
