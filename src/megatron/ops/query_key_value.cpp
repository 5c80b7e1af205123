#include "megatron/ops/query_key_value.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "megatron/ops/differentiable.h"
#include "megatron/ops/operator.h"
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

/// Returns the rotation if it has tables.
const Rotation* turn_of(const Rotation& rotation) {
  return rotation.cos.defined() ? &rotation : nullptr;
}

QueryKeyValue split_on_cpu(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                           const Rotation& rotation) {
  const Rotation* turn = turn_of(rotation);
  auto [q, k, v] = parts_of(grouped(mixed.contiguous(), groups, head_dim));
  const bool one_head_each = q.size(3) == 1;
  q = turn != nullptr || !one_head_each ? moved_heads(q, turn) : q.select(3, 0);
  if (turn != nullptr) k = moved_heads(k, turn);
  return {q, k, v};
}

QueryKeyValue split_by_steps(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                             const Rotation& rotation) {
  auto [q, k, v] = parts_of(grouped(mixed.contiguous(), groups, head_dim));
  q = q.reshape({mixed.size(0), mixed.size(1), groups * q.size(3), head_dim});
  if (!rotation.cos.defined()) return {q, k, v};
  return {rotate(q, rotation), rotate(k, rotation), v};
}

const at::Tensor& first_defined(const QueryKeyValue& d) {
  return d.q.defined() ? d.q : d.k.defined() ? d.k : d.v;
}

at::Tensor merge_on_cpu(const QueryKeyValue& d, std::int64_t groups, std::int64_t width,
                        const Rotation& rotation) {
  const at::Tensor& any = first_defined(d);
  at::Tensor mixed = at::empty({any.size(0), any.size(1), width}, any.options());
  auto [q, k, v] = parts_of(grouped(mixed, groups, any.size(3)));
  put_heads(d.q, q, turn_of(rotation));
  put_heads(d.k, k, turn_of(rotation));
  put_heads(d.v, v, nullptr);
  return mixed;
}

at::Tensor merge_by_steps(const QueryKeyValue& d, std::int64_t groups, std::int64_t width,
                          const Rotation& rotation) {
  const at::Tensor& any = first_defined(d);
  const at::Tensor mixed = at::zeros({any.size(0), any.size(1), width}, any.options());
  auto [q, k, v] = parts_of(grouped(mixed, groups, any.size(3)));
  const auto turned = [&](const at::Tensor& x) {
    return rotation.cos.defined() ? rotate(x, rotation) : x;
  };
  if (d.q.defined()) q.copy_(turned(d.q).reshape(q.sizes()));
  if (d.k.defined()) k.copy_(turned(d.k));
  if (d.v.defined()) v.copy_(d.v);
  return mixed;
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<split_on_cpu>(
      library,
      "split_query_key_value(Tensor(a) mixed, int groups, int head_dim, Tensor? cos, Tensor? sin, "
      "bool interleaved, bool inverse) -> (Tensor(a), Tensor(a), Tensor(a))");
  register_kernel<split_by_steps>(library, "split_query_key_value", kAnyDevice);
  define_operator<merge_on_cpu>(library, "split_query_key_value_backward");
  register_kernel<merge_by_steps>(library, "split_query_key_value_backward", kAnyDevice);
}

at::Tensor split_backward(const BackwardPass& pass, std::int64_t groups, std::int64_t width,
                          bool interleaved) {
  static const Operator<merge_on_cpu> op("megatron::split_query_key_value_backward");
  Rotation rotation{.interleaved = interleaved, .inverse = true};
  if (!pass.saved.empty())
    std::tie(rotation.cos, rotation.sin) = std::tie(pass.saved[0], pass.saved[1]);
  return op({pass.gradients[0], pass.gradients[1], pass.gradients[2]}, groups, width, rotation);
}

}  // namespace

QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation) {
  static const Operator<split_on_cpu> op("megatron::split_query_key_value");
  Recording recording({.name = "SplitQueryKeyValueBackward", .allows_undefined_gradients = true},
                      {mixed});
  const bool rotates = rotation != nullptr, interleaved = rotates && rotation->interleaved;
  const auto [q, k, v] = op(mixed, groups, head_dim, rotates ? *rotation : Rotation{});
  const Tensors parts = recording.finish(
      {.outputs = {q, k, v},
       .saved = rotates ? Tensors{rotation->cos, rotation->sin} : Tensors{},
       .backward = [groups, width = mixed.size(2), interleaved](BackwardPass& pass) -> Tensors {
         return {split_backward(pass, groups, width, interleaved)};
       },
       .num_differentiable = 3});
  return {parts[0], parts[1], parts[2]};
}

}  // namespace megatron
