// Shapes: s positions (sq queries, sk keys), b samples, n query heads, g key-value groups, r = n /
// g heads per group, d and dv channels.
#include "megatron/ops/core_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/fused_attention.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"

namespace megatron {
namespace {

constexpr std::int64_t kScoreElements = std::int64_t{1}
                                        << 22;  // scores alive at a time: 16 MiB in fp32

struct AttentionShape {
  std::int64_t sq, sk, b, n, g, d, dv;
  std::int64_t heads_per_group() const { return n / g; }
};

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const AttentionShape shape{q.size(0), k.size(0), q.size(1), q.size(2),
                             k.size(2), q.size(3), v.size(3)};
  MEGATRON_CHECK(shape.n % shape.g == 0 && k.size(3) == shape.d && v.size(0) == shape.sk &&
                     v.size(2) == shape.g,
                 "attention of q ", q.sizes(), " over k ", k.sizes(), " and v ", v.sizes());
  return shape;
}

/// The queries [q_begin, q_begin + q_length) and the range of keys that any of them sees.
struct QueryBlock {
  std::int64_t q_begin, q_length, k_begin, k_length;
};

QueryBlock block_at(const AttentionShape& shape, const AttentionOptions& options,
                    std::int64_t q_begin, std::int64_t q_length) {
  const std::int64_t first = options.q_start + q_begin - options.k_start,
                     last = first + q_length - 1;  // in key positions
  std::int64_t k_begin = 0, k_end = shape.sk;
  if (options.causal) k_end = std::min(k_end, last + 1);
  if (options.window[0] >= 0) k_begin = std::max(k_begin, first - options.window[0]);
  if (options.window[1] >= 0) k_end = std::min(k_end, last + options.window[1] + 1);
  if (const std::int64_t chunk = options.chunk; chunk > 0) {
    const std::int64_t position = options.q_start + q_begin;
    k_begin = std::max(k_begin, position / chunk * chunk - options.k_start);
    k_end = std::min(k_end, ((position + q_length - 1) / chunk + 1) * chunk - options.k_start);
  }
  k_end = std::max<std::int64_t>(k_end, 0);
  return {q_begin, q_length, std::min(k_begin, k_end), std::max<std::int64_t>(k_end - k_begin, 0)};
}

std::int64_t rows_per_block(const AttentionShape& shape) {
  const std::int64_t per_row = std::max<std::int64_t>(1, shape.b * shape.n * shape.sk);
  return std::clamp<std::int64_t>(kScoreElements / per_row, 16,
                                  std::max<std::int64_t>(16, shape.sq));
}

template <class Body>
void for_each_block(const AttentionShape& shape, const AttentionOptions& options, Body body) {
  const std::int64_t rows = rows_per_block(shape);
  for (std::int64_t begin = 0; begin < shape.sq; begin += rows)
    body(block_at(shape, options, begin, std::min(rows, shape.sq - begin)));
}

/// Returns a query-side tensor as [b·g, r·q, d]: the heads of a group are rows of one GEMM.
at::Tensor group_rows(const at::Tensor& x_sbnd, const AttentionShape& shape,
                      const QueryBlock& block) {
  const at::Tensor rows = x_sbnd.narrow(0, block.q_begin, block.q_length);
  return rows.reshape({block.q_length, shape.b, shape.g, shape.heads_per_group(), x_sbnd.size(3)})
      .permute({1, 2, 3, 0, 4})
      .reshape({shape.b * shape.g, shape.heads_per_group() * block.q_length, x_sbnd.size(3)});
}

at::Tensor ungroup_rows(const at::Tensor& rows, const AttentionShape& shape,
                        const QueryBlock& block) {
  return rows.view({shape.b, shape.g, shape.heads_per_group(), block.q_length, rows.size(2)})
      .permute({3, 0, 1, 2, 4})
      .reshape({block.q_length, shape.b, shape.n, rows.size(2)});
}

/// Returns a key-side tensor as a view [b·g, k, d].
at::Tensor group_keys(const at::Tensor& x_sbgd, const AttentionShape& shape,
                      const QueryBlock& block) {
  return x_sbgd.narrow(0, block.k_begin, block.k_length)
      .permute({1, 2, 0, 3})
      .reshape({shape.b * shape.g, block.k_length, x_sbgd.size(3)});
}

/// Returns the positions of the block's queries [q, 1] and keys [1, k].
std::pair<at::Tensor, at::Tensor> positions_of(const AttentionOptions& options,
                                               const QueryBlock& block, const at::Device& device) {
  const auto from = [&](std::int64_t first, std::int64_t count) {
    return at::arange(first, first + count, at::TensorOptions(at::kLong).device(device));
  };
  return {from(options.q_start + block.q_begin, block.q_length).unsqueeze(1),
          from(options.k_start + block.k_begin, block.k_length).unsqueeze(0)};
}

/// Returns a mask that is true where a query must not see a key: [q, k], or [b, 1, q, k] with
/// documents. Returns an undefined tensor when every key is visible.
at::Tensor attention_mask(const AttentionOptions& options, const QueryBlock& block,
                          const at::Device& device) {
  const auto [q_position, k_position] = positions_of(options, block, device);
  at::Tensor hidden;
  const auto hide = [&](const at::Tensor& more) {
    hidden = hidden.defined() ? hidden.logical_or(more) : more;
  };
  if (options.causal) hide(k_position > q_position);
  if (options.window[0] >= 0) hide(k_position < q_position - options.window[0]);
  if (options.window[1] >= 0) hide(k_position > q_position + options.window[1]);
  if (options.chunk > 0)
    hide(q_position.floor_divide(options.chunk) != k_position.floor_divide(options.chunk));
  if (options.document_ids.defined()) {
    const at::Tensor q_document =
        options.document_ids.narrow(1, options.q_start + block.q_begin, block.q_length)
            .unsqueeze(2);
    const at::Tensor& of_keys =
        options.key_document_ids.defined() ? options.key_document_ids : options.document_ids;
    const at::Tensor k_document =
        of_keys.narrow(1, options.k_start + block.k_begin, block.k_length).unsqueeze(1);
    hide((q_document != k_document).unsqueeze(1));
  }
  return hidden;
}

/// Returns the columns of distance_bias for the block's queries and keys, int64 [q·k].
at::Tensor distance_columns(const AttentionOptions& options, const QueryBlock& block,
                            const at::Device& device) {
  const auto [q_position, k_position] = positions_of(options, block, device);
  return (k_position - q_position + (options.total_q - 1)).reshape({-1});
}

/// Returns the scores [b, n, q, k] after scale, softcap, biases and mask. With a softcap,
/// `cap_slope` receives its derivative 1 − tanh², unless it is null.
at::Tensor scores_of(const at::Tensor& q_rows, const at::Tensor& k_rows,
                     const AttentionShape& shape, const AttentionOptions& options,
                     const QueryBlock& block, at::Tensor* cap_slope = nullptr) {
  at::Tensor scores = at::bmm(q_rows, k_rows.transpose(1, 2))
                          .mul_(options.scale)
                          .view({shape.b, shape.n, block.q_length, block.k_length});
  if (options.softcap > 0) {
    scores.div_(options.softcap).tanh_();
    if (cap_slope != nullptr) *cap_slope = 1 - scores.square();
    scores.mul_(options.softcap);
  }
  if (options.alibi_slopes.defined()) {
    const auto [q_position, k_position] = positions_of(options, block, scores.device());
    scores.add_(options.alibi_slopes.to(scores.scalar_type()).view({shape.n, 1, 1}) *
                (k_position - q_position).to(scores.scalar_type()));
  }
  if (options.distance_bias.defined())
    scores.add_(at::index_select(options.distance_bias.to(scores.scalar_type()), 1,
                                 distance_columns(options, block, scores.device()))
                    .view({shape.n, block.q_length, block.k_length}));
  const at::Tensor hidden = attention_mask(options, block, scores.device());
  if (hidden.defined()) scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return scores;
}

void drop(at::Tensor& probabilities, const AttentionOptions& options, const QueryBlock& block) {
  if (!options.dropout.active()) return;
  dropout_scores_(probabilities, options.dropout,
                  {.first_head = options.first_head,
                   .q_start = options.q_start + block.q_begin,
                   .total_q = options.total_q,
                   .k_start = options.k_start + block.k_begin,
                   .total_k = options.total_k});
}

/// Returns exp(scores − lse), with zeros in rows that see no key.
at::Tensor probabilities_of(at::Tensor scores, const at::Tensor& lse) {
  const at::Tensor finite = lse.masked_fill(lse == -std::numeric_limits<double>::infinity(), 0.0);
  return scores.sub_(finite.unsqueeze(-1)).exp_();
}

/// Forward of attention in float32 or float64, block by block of queries.
AttentionResult blocked_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  const auto& [q, k, v] = inputs;
  const AttentionShape shape = shape_of(q, k, v);
  at::Tensor out = at::empty({shape.sq, shape.b, shape.n, shape.dv}, q.options());
  at::Tensor lse = at::empty({shape.b, shape.n, shape.sq}, q.options()), top;
  if (options.wants_top) top = at::full_like(lse, -std::numeric_limits<double>::infinity());
  for_each_block(shape, options, [&](const QueryBlock& block) {
    at::Tensor scores =
        scores_of(group_rows(q, shape, block), group_keys(k, shape, block), shape, options, block);
    at::Tensor block_lse = at::logsumexp(scores, {-1});
    if (options.wants_top && block.k_length > 0)
      top.narrow(2, block.q_begin, block.q_length).copy_(scores.amax(-1));
    if (options.sinks.defined())
      block_lse = at::logaddexp(block_lse, options.sinks.to(q.scalar_type()).unsqueeze(1));
    at::Tensor p = probabilities_of(scores, block_lse);
    drop(p, options, block);
    const at::Tensor rows =
        at::bmm(p.view({shape.b * shape.g, -1, block.k_length}), group_keys(v, shape, block));
    out.narrow(0, block.q_begin, block.q_length).copy_(ungroup_rows(rows, shape, block));
    lse.narrow(2, block.q_begin, block.q_length).copy_(block_lse);
  });
  return {out.view({shape.sq, shape.b, -1}), lse, top};
}

/// Backward of attention. It recomputes the probabilities and the dropout mask of each block.
AttentionGradients blocked_backward(const at::Tensor& dout_rows, const AttentionInputs& inputs,
                                    const AttentionResult& result,
                                    const AttentionOptions& options) {
  const auto& [q, k, v] = inputs;
  const at::Tensor& lse = result.lse;
  const at::Tensor dout = dout_rows.reshape({q.size(0), q.size(1), q.size(2), v.size(3)}),
                   out = result.out.view(dout.sizes());
  const AttentionShape shape = shape_of(q, k, v);
  const at::Tensor delta = (dout * out).sum(-1).permute({1, 2, 0});  // [b, n, sq]: Σ p·dp
  at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::zeros(k.sizes(), k.options()),
             dv = at::zeros(v.sizes(), v.options()), dbias;
  if (options.distance_bias.defined())
    dbias = at::zeros(options.distance_bias.sizes(), q.options());
  for_each_block(shape, options, [&](const QueryBlock& block) {
    const at::Tensor q_rows = group_rows(q, shape, block), k_rows = group_keys(k, shape, block),
                     dout_block = group_rows(dout, shape, block);
    at::Tensor cap_slope;
    at::Tensor scores = scores_of(q_rows, k_rows, shape, options, block, &cap_slope);
    const at::Tensor p = probabilities_of(scores, lse.narrow(2, block.q_begin, block.q_length));
    at::Tensor dp = at::bmm(dout_block, group_keys(v, shape, block).transpose(1, 2)).view_as(p);
    drop(dp, options, block);
    at::Tensor dropped = options.dropout.active() ? p.clone() : p;
    drop(dropped, options, block);
    const auto add_keys = [&](at::Tensor& to, const at::Tensor& rows) {
      to.narrow(0, block.k_begin, block.k_length)
          .add_(rows.view({shape.b, shape.g, block.k_length, -1}).permute({2, 0, 1, 3}));
    };
    const auto by_group = [&](const at::Tensor& x) {
      return x.view({shape.b * shape.g, -1, block.k_length});
    };
    add_keys(dv, at::bmm(by_group(dropped).transpose(1, 2), dout_block));
    at::Tensor ds = dp.sub_(delta.narrow(2, block.q_begin, block.q_length).unsqueeze(-1)).mul_(p);
    if (dbias.defined())
      dbias.index_add_(1, distance_columns(options, block, ds.device()),
                       ds.sum(0).view({shape.n, -1}));
    if (cap_slope.defined()) ds.mul_(cap_slope);
    ds.mul_(options.scale);
    dq.narrow(0, block.q_begin, block.q_length)
        .copy_(ungroup_rows(at::bmm(by_group(ds), k_rows), shape, block));
    add_keys(dk, at::bmm(by_group(ds).transpose(1, 2), q_rows));
  });
  return {{dq, dk, dv}, dbias};
}

AttentionInputs widened(const AttentionInputs& inputs) {
  const auto type = compute_type(inputs.q.scalar_type());
  return {inputs.q.to(type), inputs.k.to(type), inputs.v.to(type)};
}

/// Forward of attention in any dtype. 16-bit inputs are computed in float32 and rounded once.
AttentionResult wide_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  AttentionResult result = blocked_attention(widened(inputs), options);
  result.out = result.out.to(inputs.q.scalar_type());
  return result;
}

AttentionGradients wide_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                 const AttentionResult& result, const AttentionOptions& options) {
  const auto type = compute_type(inputs.q.scalar_type());
  const AttentionGradients d =
      blocked_backward(dout.to(type), widened(inputs), {result.out.to(type), result.lse}, options);
  return {{d.q.to(inputs.q.scalar_type()), d.k.to(inputs.k.scalar_type()),
           d.v.to(inputs.v.scalar_type())},
          d.distance_bias};
}

AttentionResult cpu_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  return fused_attention_supports(inputs.q.scalar_type()) ? fused_attention(inputs, options)
                                                          : blocked_attention(inputs, options);
}

AttentionGradients cpu_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                const AttentionResult& result, const AttentionOptions& options) {
  return fused_attention_supports(inputs.q.scalar_type())
             ? fused_attention_backward(dout, inputs, result, options)
             : blocked_backward(dout, inputs, result, options);
}

AttentionResult meta_attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  const auto& [q, k, v] = inputs;
  const AttentionShape shape = shape_of(q, k, v);
  AttentionResult result{
      at::empty({shape.sq, shape.b, shape.n * shape.dv}, q.options()),
      at::empty({shape.b, shape.n, shape.sq}, q.options().dtype(compute_type(q.scalar_type())))};
  if (options.wants_top) result.top = at::empty_like(result.lse);
  return result;
}

AttentionGradients meta_backward(const at::Tensor& /*dout*/, const AttentionInputs& inputs,
                                 const AttentionResult& /*result*/,
                                 const AttentionOptions& options) {
  const auto& [q, k, v] = inputs;
  const at::Tensor& bias = options.distance_bias;
  return {{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
           at::empty(v.sizes(), v.options())},
          bias.defined() ? at::empty_like(bias) : at::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<cpu_attention>(library, "attention");
  register_kernel<wide_attention>(library, "attention", kAnyDevice);
  register_kernel<meta_attention>(library, "attention", kMetaDevice);
  define_operator<cpu_backward>(library, "attention_backward");
  register_kernel<wide_backward>(library, "attention_backward", kAnyDevice);
  register_kernel<meta_backward>(library, "attention_backward", kMetaDevice);
}

/// Fills in the totals that are not given, and leaves out the positions of hidden states.
AttentionOptions with_totals(AttentionOptions options, const AttentionInputs& inputs) {
  options.dropout.positions = {};
  if (options.total_q == 0) options.total_q = options.q_start + inputs.q.size(0);
  if (options.total_k == 0) options.total_k = options.k_start + inputs.k.size(0);
  return options;
}

/// Returns whether ATen's flash kernels support the options. They have no dropout, window, chunks,
/// bias, sink or softcap. Their causal mask starts at the top left, so queries must start where
/// keys do, or be a single query at the end.
bool can_use_flash_attention(const AttentionShape& shape, const AttentionOptions& options) {
  const bool plain = !options.dropout.active() && options.window[0] < 0 && options.window[1] < 0 &&
                     options.chunk == 0 && options.softcap == 0 &&
                     !options.alibi_slopes.defined() && !options.distance_bias.defined() &&
                     !options.sinks.defined() && !options.max_scores.defined() &&
                     !options.document_ids.defined() && shape.d == shape.dv;
  if (!plain) return false;
  if (!options.causal || (options.q_start == options.k_start && shape.sq == shape.sk)) return true;
  return shape.sq == 1 && options.q_start - options.k_start == shape.sk - 1;
}

/// Runs the accelerator's fused kernel on [b, n or g, s, d].
AttentionResult accelerator_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionShape& shape,
                                      const AttentionOptions& options) {
  const auto heads_first = [](const at::Tensor& x) { return x.permute({1, 2, 0, 3}); };
  const at::Tensor out = at::scaled_dot_product_attention(
      heads_first(q), heads_first(k), heads_first(v), std::nullopt, 0.0,
      options.causal && shape.sq > 1, options.scale, /*enable_gqa=*/shape.n != shape.g);
  return {out.permute({2, 0, 1, 3}).reshape({shape.sq, shape.b, shape.n * shape.dv}), at::Tensor()};
}

}  // namespace

AttentionResult attention_forward(const AttentionInputs& inputs, const AttentionOptions& options) {
  static const Operator<cpu_attention> op("megatron::attention");
  shape_of(inputs.q, inputs.k, inputs.v);
  AttentionOptions full = with_totals(options, inputs);
  full.wants_top = options.max_scores.defined();
  AttentionResult result = op(inputs, full);
  if (full.wants_top && result.top.numel() > 0)
    at::Tensor(options.max_scores)
        .copy_(
            at::maximum(options.max_scores, result.top.amax(at::IntArrayRef{0, 2}).to(at::kFloat)));
  result.top = at::Tensor();
  return result;
}

AttentionGradients attention_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                      const AttentionResult& result,
                                      const AttentionOptions& options) {
  static const Operator<cpu_backward> op("megatron::attention_backward");
  return op(dout, inputs, result, with_totals(options, inputs));
}

/// d sink = −Σ over queries of p·Σ p·dp, where p is the probability of the sink and Σ p·dp =
/// Σ dout·out, since its own value is zero.
at::Tensor sink_gradient(const at::Tensor& dout, const AttentionResult& result,
                         const at::Tensor& sinks) {
  constexpr std::int64_t kPositions = 64;  // whose products stay in the L2 cache
  const at::Tensor& lse = result.lse;      // [b, n, sq]
  const at::Tensor delta = at::empty_like(lse);
  for (std::int64_t first = 0; first < lse.size(2); first += kPositions) {
    const std::int64_t count = std::min(kPositions, lse.size(2) - first);
    const auto rows = [&](const at::Tensor& x) {
      return x.narrow(0, first, count)
          .reshape({count, lse.size(0), lse.size(1), -1})
          .to(lse.scalar_type());
    };
    delta.narrow(2, first, count).copy_((rows(dout) * rows(result.out)).sum(-1).permute({1, 2, 0}));
  }
  const at::Tensor p = (sinks.to(lse.scalar_type()).unsqueeze(1) - lse).exp_();
  return p.mul_(delta)
      .sum(at::IntArrayRef{0, 2}, /*keepdim=*/false, at::kDouble)
      .neg()
      .to(sinks.scalar_type());
}

AttentionResult core_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options) {
  const AttentionShape shape = shape_of(q, k, v);
  if (q.is_cuda() && can_use_flash_attention(shape, options)) {
    if (!has_saved_tensor_hooks()) return accelerator_attention(q, k, v, shape, options);
    const auto attend = [shape, options](const Tensors& x) {
      return accelerator_attention(x[0], x[1], x[2], shape, options).out;
    };
    return {differentiable_by_autograd({.name = "FlashAttentionBackward"}, {q, k, v}, attend), {}};
  }
  AttentionOptions plain = options;  // of backward
  plain.sinks = plain.max_scores = plain.distance_bias = at::Tensor();
  Recording recording({.name = "AttentionBackward"},
                      {q, k, v, options.sinks, options.distance_bias});
  const auto [out, lse, top] = attention_forward({q, k, v}, options);
  const auto backward = [plain](BackwardPass& pass) -> Tensors {
    const Tensors& saved = pass.saved;
    const at::Tensor& dout = pass.gradients[0];
    const AttentionResult result{saved[3], saved[4]};
    AttentionOptions own = plain;
    own.distance_bias = saved[6];
    const AttentionGradients d =
        attention_backward(dout, {saved[0], saved[1], saved[2]}, result, own);
    return {d.q, d.k, d.v,
            pass.needs_input[3] ? sink_gradient(dout, result, saved[5]) : at::Tensor(),
            d.distance_bias};
  };
  return {
      recording.finish(out, {q, k, v, out, lse, options.sinks, options.distance_bias}, backward),
      lse};
}

}  // namespace megatron
