#include "megatron/ops/linear_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/linear_attention.h"
#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

using Inputs = LinearAttentionInputs;
using Optional = std::optional<at::Tensor>;

kernels::HeadsView view_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

/// Inputs in the form that the kernels read, and arguments that point to them.
struct Readable {
  Readable(const Inputs& given, at::IntArrayRef numbers, const LinearAttentionRule& rule,
           const Optional& states)
      : in{with_unit_stride(given.q), with_unit_stride(given.k), with_unit_stride(given.v),
           given.g.contiguous(), given.beta.defined() ? given.beta.contiguous() : at::Tensor()},
        initial_states(states ? states->contiguous() : at::Tensor()),
        pieces(pieces_of_numbers(numbers)),
        arguments{.type = kernel_type(in.v.scalar_type()),
                  .q = view_of(in.q),
                  .k = view_of(in.k),
                  .v = view_of(in.v),
                  .g = in.g.const_data_ptr(),
                  .beta = data_or_null(in.beta),
                  .s = in.v.size(0),
                  .b = in.v.size(1),
                  .groups = in.q.size(2),
                  .heads = in.v.size(2),
                  .n = in.q.size(3),
                  .p = in.v.size(3),
                  .delta_rule = rule.delta_rule,
                  .normalizes_qk = rule.normalizes_qk,
                  .q_scale = rule.q_scale,
                  .pieces = pieces.data(),
                  .num_pieces = static_cast<std::int64_t>(pieces.size()),
                  .initial_states = data_or_null(initial_states)} {}
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;

  /// Calls kernel(arguments, part, part + 1, workspace) for all parts.
  template <class Arguments>
  static void run(void (*kernel)(const Arguments&, std::int64_t, std::int64_t, void*),
                  const Arguments& arguments, std::int64_t parts, std::int64_t workspace_bytes) {
    dynamic_parallel_for(parts, std::min<std::int64_t>(at::get_num_threads(), parts),
                         [&](std::int64_t part) {
                           kernel(arguments, part, part + 1, thread_workspace(workspace_bytes));
                         });
  }

  Inputs in;
  at::Tensor initial_states;
  RowPieces pieces;
  kernels::LinearAttentionArguments arguments;
};

at::Tensor empty_states(const Inputs& in, std::size_t pieces) {
  return at::empty({static_cast<std::int64_t>(pieces), in.v.size(2), in.q.size(3), in.v.size(3)},
                   in.v.options().dtype(compute_type(in.v.scalar_type())));
}

LinearAttentionResult forward_on_cpu(const Inputs& inputs, at::IntArrayRef numbers,
                                     const LinearAttentionRule& rule,
                                     const Optional& initial_states, bool wants_final_states) {
  const Readable call(inputs, numbers, rule, initial_states);
  LinearAttentionResult result{
      .out =
          empty_rows(call.pieces, call.in.v, call.in.v.sizes().slice(2), call.in.v.scalar_type()),
      .final_states =
          wants_final_states ? empty_states(call.in, call.pieces.size()) : at::Tensor()};
  const kernels::LinearAttentionForwardArguments arguments{
      call.arguments, result.out.mutable_data_ptr(), mutable_or_null(result.final_states)};
  const kernels::LinearAttentionKernels& table = kernels::linear_attention_kernels();
  Readable::run(table.forward, arguments, arguments.num_pieces * arguments.heads,
                table.forward_workspace(arguments));
  return result;
}

/// Returns into how many parts the heads of a group are split, by the shape alone.
std::int64_t splits_of(const kernels::LinearAttentionArguments& a) {
  constexpr std::int64_t kEnoughParts = 16;
  const std::int64_t parts = std::max<std::int64_t>(1, a.num_pieces * a.groups);
  return std::clamp<std::int64_t>(kEnoughParts / parts, 1, a.heads / a.groups);
}

/// The gradients are in the places of the inputs.
Inputs backward_on_cpu(const at::Tensor& gradient, const Inputs& inputs, at::IntArrayRef numbers,
                       const LinearAttentionRule& rule, const Optional& initial_states) {
  const Readable call(inputs, numbers, rule, initial_states);
  const auto& [q, k, v, g, beta] = call.in;
  const at::Tensor dout = with_unit_stride(gradient);
  const std::int64_t splits = splits_of(call.arguments);
  const auto sums = [&](const at::Tensor& x) {
    return at::zeros({splits, x.size(0), x.size(1), x.size(2), x.size(3)}, g.options());
  };
  const at::Tensor dq = sums(q), dk = sums(k);
  const auto rows = [&](const at::Tensor& x) {
    return empty_rows(call.pieces, x, x.sizes().slice(2), x.scalar_type());
  };
  Inputs d{.q = {},
           .k = {},
           .v = rows(v),
           .g = rows(g),
           .beta = beta.defined() ? rows(beta) : at::Tensor()};
  const kernels::LinearAttentionBackwardArguments arguments{
      call.arguments,          view_of(dout),
      dq.mutable_data_ptr(),   dk.mutable_data_ptr(),
      d.v.mutable_data_ptr(),  d.g.mutable_data_ptr(),
      mutable_or_null(d.beta), splits};
  const kernels::LinearAttentionKernels& table = kernels::linear_attention_kernels();
  Readable::run(table.backward, arguments, arguments.num_pieces * arguments.groups * splits,
                table.backward_workspace(arguments));
  d.q = (splits == 1 ? dq[0] : dq.sum(0)).to(q.scalar_type());
  d.k = (splits == 1 ? dk[0] : dk.sum(0)).to(k.scalar_type());
  return d;
}

/// Rows of some heads [columns, heads, rows, …] in compute_type().
struct HeadRows {
  at::Tensor q, k, v, g, beta;
};

/// Returns the outputs of a chunk and advances the state [columns, heads, n, p].
at::Tensor chunk_by_aten(const HeadRows& x, bool delta_rule, at::Tensor& state) {
  const std::int64_t count = x.g.size(2);
  const at::Tensor sums = x.g.cumsum(-1), enter = at::exp(sums).unsqueeze(-1),
                   lower = at::ones({count, count}, x.g.options().dtype(at::kBool)).tril();
  const at::Tensor decay =
      at::exp((sums.unsqueeze(-1) - sums.unsqueeze(-2))
                  .masked_fill(lower.logical_not(), -std::numeric_limits<double>::infinity()));
  const at::Tensor keys = x.k.transpose(-2, -1);
  at::Tensor u = x.v * x.beta;
  if (delta_rule) {
    u = (x.v - enter * at::matmul(x.k, state)) * x.beta;
    const at::Tensor reads = (at::matmul(x.k, keys) * decay * x.beta).tril(-1);
    u = at::linalg_solve_triangular(reads, u, /*upper=*/false, /*left=*/true,
                                    /*unitriangular=*/true);
  }
  const at::Tensor out =
      enter * at::matmul(x.q, state) + at::matmul(at::matmul(x.q, keys) * decay, u);
  const at::Tensor last = sums.narrow(-1, count - 1, 1).unsqueeze(-1),
                   leave = at::exp(last - sums.unsqueeze(-1));
  state = at::exp(last) * state + at::matmul(keys, u * leave);
  return out;
}

/// Neighbouring columns with the same rows, in one computation.
HeadRows head_rows(const Inputs& in, const RowPiece& rows, std::int64_t columns,
                   const LinearAttentionRule& rule) {
  const auto type = compute_type(in.v.scalar_type());
  const std::int64_t heads = in.v.size(2);
  const auto some = [&](const at::Tensor& x) {
    return x.narrow(0, rows.row, rows.count).narrow(1, rows.column, columns).to(type);
  };
  const auto of_groups = [&](const at::Tensor& x, double scale) {
    at::Tensor wide = some(x);
    if (rule.normalizes_qk) wide = wide * (wide.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt();
    return (wide * scale).repeat_interleave(heads / x.size(2), 2).permute({1, 2, 0, 3});
  };
  const at::Tensor g = some(in.g).permute({1, 2, 0});
  return {of_groups(in.q, rule.q_scale), of_groups(in.k, 1), some(in.v).permute({1, 2, 0, 3}), g,
          in.beta.defined() ? some(in.beta).permute({1, 2, 0}).unsqueeze(-1)
                            : at::ones_like(g).unsqueeze(-1)};
}

LinearAttentionResult forward_by_aten(const Inputs& in, at::IntArrayRef numbers,
                                      const LinearAttentionRule& rule,
                                      const Optional& initial_states, bool wants_final_states) {
  const RowPieces pieces = pieces_of_numbers(numbers);
  const at::Tensor out = at::zeros(in.v.sizes(), in.v.options());
  Tensors states;
  for (std::size_t i = 0, end = 0; i < pieces.size(); i = end) {
    const RowPiece& piece = pieces[i];
    const auto continues = [&](const RowPiece& next) {
      return next.row == piece.row && next.count == piece.count &&
             next.position == piece.position &&
             next.column == piece.column + static_cast<std::int64_t>(end - i);
    };
    for (end = i + 1; end < pieces.size() && continues(pieces[end]);) ++end;
    const auto first = static_cast<std::int64_t>(i), columns = static_cast<std::int64_t>(end - i);
    const HeadRows all = head_rows(in, piece, columns, rule);
    at::Tensor state =
        initial_states
            ? initial_states->narrow(0, first, columns)
            : at::zeros({columns, in.v.size(2), in.q.size(3), in.v.size(3)}, all.v.options());
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < piece.count; row += count) {
      constexpr std::int64_t kRows = kernels::kLinearAttentionRows;
      count = std::min(kRows - (piece.position + row) % kRows, piece.count - row);
      const auto part = [&](const at::Tensor& x) { return x.narrow(2, row, count); };
      const at::Tensor rows =
          chunk_by_aten({part(all.q), part(all.k), part(all.v), part(all.g), part(all.beta)},
                        rule.delta_rule, state);
      out.narrow(0, piece.row + row, count)
          .narrow(1, piece.column, columns)
          .copy_(rows.permute({2, 0, 1, 3}));
    }
    states.push_back(state);
  }
  return {out, wants_final_states ? at::cat(states) : at::Tensor()};
}

Inputs backward_by_aten(const at::Tensor& dout, const Inputs& in, at::IntArrayRef numbers,
                        const LinearAttentionRule& rule, const Optional& initial_states) {
  Tensors inputs{in.q, in.k, in.v, in.g};
  if (in.beta.defined()) inputs.push_back(in.beta);
  const auto forward = [&](const Tensors& x) {
    return forward_by_aten({x[0], x[1], x[2], x[3], x.size() > 4 ? x[4] : at::Tensor()}, numbers,
                           rule, initial_states, /*wants_final_states=*/false)
        .out;
  };
  Tensors d = gradients_by_autograd(forward, inputs, std::vector<bool>(inputs.size(), true), dout);
  d.resize(5);
  return {d[0], d[1], d[2], d[3], d[4]};
}

at::Tensor empty_of(const at::Tensor& x) {
  return x.defined() ? at::empty(x.sizes(), x.options()) : at::Tensor();
}

LinearAttentionResult forward_on_meta(const Inputs& in, at::IntArrayRef numbers,
                                      const LinearAttentionRule& /*rule*/,
                                      const Optional& /*initial_states*/, bool wants_final_states) {
  return {empty_of(in.v), wants_final_states ? empty_states(in, numbers.size() / 4) : at::Tensor()};
}

Inputs backward_on_meta(const at::Tensor& /*dout*/, const Inputs& in, at::IntArrayRef /*numbers*/,
                        const LinearAttentionRule& /*rule*/, const Optional& /*initial_states*/) {
  return {empty_of(in.q), empty_of(in.k), empty_of(in.v), empty_of(in.g), empty_of(in.beta)};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<forward_on_cpu>(library, "linear_attention");
  register_kernel<forward_by_aten>(library, "linear_attention", kAnyDevice);
  register_kernel<forward_on_meta>(library, "linear_attention", kMetaDevice);
  define_operator<backward_on_cpu>(library, "linear_attention_backward");
  register_kernel<backward_by_aten>(library, "linear_attention_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "linear_attention_backward", kMetaDevice);
}

void check(const Inputs& in, std::size_t pieces, const at::Tensor& states) {
  const auto type = compute_type(in.v.scalar_type());
  const auto is_gate = [&](const at::Tensor& x) {
    return x.sizes() == in.v.sizes().slice(0, 3) && x.scalar_type() == type;
  };
  MEGATRON_CHECK(in.q.dim() == 4 && in.v.dim() == 4 && in.k.sizes() == in.q.sizes() &&
                     in.q.sizes().slice(0, 2) == in.v.sizes().slice(0, 2) &&
                     in.v.size(2) % in.q.size(2) == 0 && is_gate(in.g) &&
                     (!in.beta.defined() || is_gate(in.beta)),
                 "linear attention of q ", in.q.sizes(), ", k ", in.k.sizes(), ", v ", in.v.sizes(),
                 " and g ", in.g.sizes(), " of ", in.g.scalar_type());
  MEGATRON_CHECK(
      in.q.scalar_type() == in.v.scalar_type() && in.k.scalar_type() == in.v.scalar_type(),
      "linear attention of ", in.q.scalar_type(), ", ", in.k.scalar_type(), " and ",
      in.v.scalar_type());
  MEGATRON_CHECK(
      !states.defined() ||
          (states.size(0) == static_cast<std::int64_t>(pieces) && states.scalar_type() == type),
      "states ", states.defined() ? states.sizes() : at::IntArrayRef(), " of ", pieces, " pieces");
}

}  // namespace

LinearAttentionResult linear_attention(const LinearAttentionInputs& inputs,
                                       const LinearAttentionOptions& options) {
  static const Operator<forward_on_cpu> op("megatron::linear_attention");
  const std::vector<std::int64_t> numbers = flat_pieces(options.pieces, inputs.v);
  check(inputs, numbers.size() / 4, options.initial_states);
  const auto& [q, k, v, g, beta] = inputs;
  Recording recording({.name = "LinearAttentionBackward"}, {q, k, v, g, beta});
  LinearAttentionResult result =
      op(inputs, numbers, options.rule, optional_tensor(options.initial_states),
         options.wants_final_states);
  result.out = recording.finish(
      result.out, {q, k, v, g, beta, options.initial_states},
      [numbers, rule = options.rule](BackwardPass& pass) -> Tensors {
        static const Operator<backward_on_cpu> backward("megatron::linear_attention_backward");
        const Tensors& x = pass.saved;
        const Inputs d = backward(pass.gradients[0], Inputs{x[0], x[1], x[2], x[3], x[4]}, numbers,
                                  rule, optional_tensor(x[5]));
        return {d.q, d.k, d.v, d.g, d.beta};
      });
  return result;
}

LinearAttentionBuffers linear_attention_buffers(const LinearAttentionSizes& sizes) {
  const std::vector<RowPiece> pieces(static_cast<std::size_t>(sizes.b), {.count = sizes.longest});
  kernels::LinearAttentionArguments a{};
  a.groups = sizes.groups;
  a.heads = sizes.heads;
  a.n = sizes.n;
  a.p = sizes.p;
  a.pieces = pieces.data();
  a.num_pieces = sizes.b;
  const std::int64_t elements = sizes.s * sizes.b * sizes.groups * sizes.n;
  return {.backward = 2 * splits_of(a) * elements * static_cast<std::int64_t>(sizeof(float)),
          .per_thread = kernels::linear_attention_kernels().backward_workspace(a)};
}

}  // namespace megatron
