#include "megatron/ops/query_key_value.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/ops/differentiable.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/rotary.h"

namespace megatron {
namespace {

/// Returns a view [s, b, g, r + 2, d].
at::Tensor grouped(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim) {
  return mixed.view(
      {mixed.size(0), mixed.size(1), groups, mixed.size(2) / groups / head_dim, head_dim});
}

QueryKeyValue parts_of(const at::Tensor& grouped) {
  const std::int64_t r = grouped.size(3) - 2;
  return {grouped.narrow(3, 0, r), grouped.select(3, r), grouped.select(3, r + 1)};
}

at::Tensor moved_heads(const at::Tensor& from, const Rotation* rotation) {
  const std::int64_t heads = from.dim() == 5 ? from.size(2) * from.size(3) : from.size(2);
  at::Tensor to = at::empty({from.size(0), from.size(1), heads, from.size(-1)}, from.options());
  copy_heads(from, to, rotation);
  return to;
}

/// Writes a gradient into its part of the mixed gradient, or zeros when the gradient is undefined.
void put_heads(const at::Tensor& gradient, at::Tensor& part, const Rotation* rotation) {
  if (gradient.defined()) {
    copy_heads(gradient, part, rotation);
  } else {
    part.zero_();
  }
}

QueryKeyValue fused_split(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                          const Rotation* rotation) {
  const DifferentiableOp op{.name = "SplitQueryKeyValueBackward",
                            .allows_undefined_gradients = true};
  const Tensors parts = differentiable(op, {mixed}, [&] {
    const at::Tensor rows = mixed.contiguous();
    const OpScope scope("megatron::split_query_key_value", {rows});
    auto [q, k, v] = parts_of(grouped(rows, groups, head_dim));
    const bool one_head_each = q.size(3) == 1;
    q = rotation != nullptr || !one_head_each ? moved_heads(q, rotation) : q.select(3, 0);
    if (rotation != nullptr) k = moved_heads(k, rotation);
    Recorded recorded{.outputs = {q, k, v}, .saved = {}, .backward = {}, .num_differentiable = 3};
    if (rotation != nullptr) recorded.saved = {rotation->cos, rotation->sin};
    recorded.backward = [groups, width = mixed.size(2),
                         interleaved = rotation != nullptr &&
                                       rotation->interleaved](BackwardPass& pass) -> Tensors {
      const bool rotates = !pass.saved.empty();
      const Rotation back =
          rotates ? Rotation{pass.saved[0], pass.saved[1], interleaved, -1} : Rotation{};
      const Tensors& gradients = pass.gradients;
      const at::Tensor& any =
          *std::find_if(gradients.begin(), gradients.end(),
                        [](const at::Tensor& gradient) { return gradient.defined(); });
      at::Tensor dmixed = at::empty({any.size(0), any.size(1), width}, any.options());
      const OpScope scope("megatron::split_query_key_value_backward",
                          {gradients[0], gradients[1], gradients[2], dmixed});
      auto [dq, dk, dv] = parts_of(grouped(dmixed, groups, any.size(3)));
      put_heads(gradients[0], dq, rotates ? &back : nullptr);
      put_heads(gradients[1], dk, rotates ? &back : nullptr);
      put_heads(gradients[2], dv, nullptr);
      return {dmixed};
    };
    return recorded;
  });
  return {parts[0], parts[1], parts[2]};
}

}  // namespace

QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation) {
  if (mixed.is_cpu()) return fused_split(mixed, groups, head_dim, rotation);
  auto [q, k, v] = parts_of(grouped(mixed, groups, head_dim));
  q = q.reshape({mixed.size(0), mixed.size(1), groups * q.size(3), head_dim});
  if (rotation == nullptr) return {q, k, v};
  const auto rotated = [rotation](const at::Tensor& x) {
    return apply_rotary(x, rotation->cos, rotation->sin, rotation->interleaved);
  };
  return {rotated(q), rotated(k), v};
}

}  // namespace megatron
