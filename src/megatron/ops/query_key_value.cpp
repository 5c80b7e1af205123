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

using Optional = std::optional<at::Tensor>;
using Parts = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

std::optional<Rotation> rotation_of(const Optional& cos, const Optional& sin, bool interleaved,
                                    bool inverse) {
  if (!cos) return std::nullopt;
  return Rotation{*cos, *sin, interleaved, inverse};
}

Parts split_on_cpu(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                   const Optional& cos, const Optional& sin, bool interleaved) {
  const auto rotation = rotation_of(cos, sin, interleaved, /*inverse=*/false);
  const Rotation* turn = rotation ? &*rotation : nullptr;
  auto [q, k, v] = parts_of(grouped(mixed.contiguous(), groups, head_dim));
  const bool one_head_each = q.size(3) == 1;
  q = rotation || !one_head_each ? moved_heads(q, turn) : q.select(3, 0);
  if (rotation) k = moved_heads(k, turn);
  return {q, k, v};
}

Parts split_by_steps(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                     const Optional& cos, const Optional& sin, bool interleaved) {
  auto [q, k, v] = parts_of(grouped(mixed.contiguous(), groups, head_dim));
  q = q.reshape({mixed.size(0), mixed.size(1), groups * q.size(3), head_dim});
  if (!cos) return {q, k, v};
  const Rotation rotation{*cos, *sin, interleaved};
  return {rotate(q, rotation), rotate(k, rotation), v};
}

const at::Tensor& first_defined(const Optional& a, const Optional& b, const Optional& c) {
  return a ? *a : b ? *b : *c;
}

at::Tensor merge_on_cpu(const Optional& dq, const Optional& dk, const Optional& dv,
                        std::int64_t groups, std::int64_t width, const Optional& cos,
                        const Optional& sin, bool interleaved) {
  const auto rotation = rotation_of(cos, sin, interleaved, /*inverse=*/true);
  const Rotation* turn = rotation ? &*rotation : nullptr;
  const at::Tensor& any = first_defined(dq, dk, dv);
  at::Tensor mixed = at::empty({any.size(0), any.size(1), width}, any.options());
  auto [q, k, v] = parts_of(grouped(mixed, groups, any.size(3)));
  put_heads(tensor_or_none(dq), q, turn);
  put_heads(tensor_or_none(dk), k, turn);
  put_heads(tensor_or_none(dv), v, nullptr);
  return mixed;
}

at::Tensor merge_by_steps(const Optional& dq, const Optional& dk, const Optional& dv,
                          std::int64_t groups, std::int64_t width, const Optional& cos,
                          const Optional& sin, bool interleaved) {
  const auto rotation = rotation_of(cos, sin, interleaved, /*inverse=*/true);
  const at::Tensor& any = first_defined(dq, dk, dv);
  const at::Tensor mixed = at::zeros({any.size(0), any.size(1), width}, any.options());
  auto [q, k, v] = parts_of(grouped(mixed, groups, any.size(3)));
  const auto turned = [&](const at::Tensor& x) { return rotation ? rotate(x, *rotation) : x; };
  if (dq) q.copy_(turned(*dq).reshape(q.sizes()));
  if (dk) k.copy_(turned(*dk));
  if (dv) v.copy_(*dv);
  return mixed;
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator(library,
                  "split_query_key_value(Tensor(a) mixed, int groups, int head_dim, Tensor? cos, "
                  "Tensor? sin, bool interleaved) -> (Tensor(a), Tensor(a), Tensor(a))");
  register_kernel(library, "split_query_key_value", c10::DispatchKey::CPU, split_on_cpu);
  register_kernel(library, "split_query_key_value", kAnyDevice, split_by_steps);
  define_operator(library,
                  "split_query_key_value_backward(Tensor? dq, Tensor? dk, Tensor? dv, int groups, "
                  "int width, Tensor? cos, Tensor? sin, bool interleaved) -> Tensor");
  register_kernel(library, "split_query_key_value_backward", c10::DispatchKey::CPU, merge_on_cpu);
  register_kernel(library, "split_query_key_value_backward", kAnyDevice, merge_by_steps);
}

at::Tensor split_backward(const BackwardPass& pass, std::int64_t groups, std::int64_t width,
                          bool interleaved) {
  static const auto op =
      find_operator<decltype(merge_on_cpu)>("megatron::split_query_key_value_backward");
  const bool rotates = !pass.saved.empty();
  return op.call(optional_tensor(pass.gradients[0]), optional_tensor(pass.gradients[1]),
                 optional_tensor(pass.gradients[2]), groups, width,
                 rotates ? std::optional(pass.saved[0]) : std::nullopt,
                 rotates ? std::optional(pass.saved[1]) : std::nullopt, interleaved);
}

}  // namespace

QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups,
                                    std::int64_t head_dim, const Rotation* rotation) {
  static const auto op = find_operator<decltype(split_on_cpu)>("megatron::split_query_key_value");
  const DifferentiableOp name{.name = "SplitQueryKeyValueBackward",
                              .allows_undefined_gradients = true};
  const Tensors parts = differentiable(name, {mixed}, [&] {
    const bool rotates = rotation != nullptr, interleaved = rotates && rotation->interleaved;
    auto [q, k, v] =
        op.call(mixed, groups, head_dim, rotates ? std::optional(rotation->cos) : std::nullopt,
                rotates ? std::optional(rotation->sin) : std::nullopt, interleaved);
    Recorded recorded{.outputs = {q, k, v}, .saved = {}, .backward = {}, .num_differentiable = 3};
    if (rotates) recorded.saved = {rotation->cos, rotation->sin};
    recorded.backward = [groups, width = mixed.size(2),
                         interleaved](BackwardPass& pass) -> Tensors {
      return {split_backward(pass, groups, width, interleaved)};
    };
    return recorded;
  });
  return {parts[0], parts[1], parts[2]};
}

}  // namespace megatron
