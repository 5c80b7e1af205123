#include "megatron/transformer/query_key_value.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/op_scope.h"
#include "megatron/transformer/rotary.h"

namespace megatron {
namespace {

/// [s, b, g, r + 2, d].
at::Tensor grouped(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim) {
  return mixed.view({mixed.size(0), mixed.size(1), groups, mixed.size(2) / groups / head_dim, head_dim});
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

/// Into a part of the mixed gradient; zeros where there is none.
void put_heads(const at::Tensor& gradient, at::Tensor& part, const Rotation* rotation) {
  if (gradient.defined()) {
    copy_heads(gradient, part, rotation);
  } else {
    part.zero_();
  }
}

struct SplitQueryKeyValue : torch::autograd::Function<SplitQueryKeyValue> {
  static variable_list forward(AutogradContext* context, const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim,
                               const std::optional<Rotation>& rotation) {
    context->saved_data["groups"] = groups;
    context->saved_data["width"] = mixed.size(2);
    context->saved_data["rotates"] = rotation.has_value();
    if (rotation) {
      context->save_for_backward({rotation->cos, rotation->sin});
      context->saved_data["interleaved"] = rotation->interleaved;
    }
    context->set_materialize_grads(false);
    const at::Tensor rows = mixed.contiguous();
    const OpScope scope("megatron::split_query_key_value", {rows});
    auto [q, k, v] = parts_of(grouped(rows, groups, head_dim));
    const Rotation* turn = rotation ? &*rotation : nullptr;
    const bool one_head_each = q.size(3) == 1;
    q = turn != nullptr || !one_head_each ? moved_heads(q, turn) : q.select(3, 0);
    if (turn != nullptr) k = moved_heads(k, turn);
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const bool rotates = context->saved_data["rotates"].toBool();
    const auto saved = context->get_saved_variables();
    const Rotation back = rotates ? Rotation{saved[0], saved[1], context->saved_data["interleaved"].toBool(), -1} : Rotation{};
    const at::Tensor& any = *std::find_if(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) { return gradient.defined(); });
    const std::int64_t d = any.size(3), groups = context->saved_data["groups"].toInt();
    const at::Tensor mixed = at::empty({any.size(0), any.size(1), context->saved_data["width"].toInt()}, any.options());
    const OpScope scope("megatron::split_query_key_value_backward", {gradients[0], gradients[1], gradients[2], mixed});
    auto [q, k, v] = parts_of(grouped(mixed, groups, d));
    put_heads(gradients[0], q, rotates ? &back : nullptr);
    put_heads(gradients[1], k, rotates ? &back : nullptr);
    put_heads(gradients[2], v, nullptr);
    return {mixed, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

QueryKeyValue split_query_key_value(const at::Tensor& mixed, std::int64_t groups, std::int64_t head_dim, const Rotation* rotation) {
  if (mixed.is_cpu()) {
    const variable_list parts =
        SplitQueryKeyValue::apply(mixed, groups, head_dim, rotation != nullptr ? std::optional(*rotation) : std::optional<Rotation>());
    return {parts[0], parts[1], parts[2]};
  }
  auto [q, k, v] = parts_of(grouped(mixed, groups, head_dim));
  q = q.reshape({mixed.size(0), mixed.size(1), groups * q.size(3), head_dim});
  if (rotation == nullptr) return {q, k, v};
  const auto rotated = [rotation](const at::Tensor& x) { return apply_rotary(x, rotation->cos, rotation->sin, rotation->interleaved); };
  return {rotated(q), rotated(k), v};
}

}  // namespace megatron
