#include "megatron/ops/latent_heads.h"

#include <ATen/ops/empty.h>

#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

/// Copies heads [s, b, n, d], rotated unless `rotation` is null.
void put(const at::Tensor& from, at::Tensor to, const Rotation* rotation) {
  if (to.is_cpu())
    copy_heads(from, to, rotation);
  else
    to.copy_(rotation != nullptr ? rotate(from, *rotation) : from);
}

/// Returns x [s, b, n·width] as heads [s, b, n, width].
at::Tensor heads_of(const at::Tensor& x, std::int64_t width) {
  return x.view({x.size(0), x.size(1), x.size(2) / width, width});
}

/// Copies queries, of which only the last channels are rotated.
void put_query(const at::Tensor& from, const at::Tensor& to, const LatentHeadDims& dims,
               const Rotation& rotation) {
  put(from.narrow(-1, 0, dims.qk), to.narrow(-1, 0, dims.qk), nullptr);
  put(from.narrow(-1, dims.qk, dims.rotated), to.narrow(-1, dims.qk, dims.rotated), &rotation);
}

Tensors heads_backward(const BackwardPass& pass, const LatentHeadDims& dims, bool interleaved) {
  const Rotation rotation{pass.saved[0], pass.saved[1], interleaved, /*inverse=*/true};
  const at::Tensor &dq = pass.gradients[0], &dk = pass.gradients[1], &dv = pass.gradients[2];
  at::Tensor from_q = at::empty(dq.sizes(), dq.options());
  put_query(dq, from_q, dims, rotation);
  const std::int64_t s = dk.size(0), b = dk.size(1), n = dk.size(2);
  at::Tensor from_kv = at::empty({s, b, n, dims.qk + dims.v}, dk.options());
  put(dk.narrow(-1, 0, dims.qk), from_kv.narrow(-1, 0, dims.qk), nullptr);
  put(dv, from_kv.narrow(-1, dims.qk, dims.v), nullptr);
  const at::Tensor of_all_heads = dk.narrow(-1, dims.qk, dims.rotated)
                                      .sum(2, /*keepdim=*/true, compute_type(dk.scalar_type()))
                                      .to(dk.scalar_type());
  return {from_q.flatten(2), from_kv.flatten(2), rotate(of_all_heads, rotation).squeeze(2)};
}

}  // namespace

AttentionInputs latent_heads(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& k_pos,
                             const LatentHeadDims& dims, const Rotation& rotation) {
  Recording recording({.name = "LatentHeadsBackward"}, {q, kv, k_pos});
  recording.save({rotation.cos, rotation.sin});
  const at::Tensor from_q = heads_of(q.contiguous(), dims.qk + dims.rotated),
                   from_kv = heads_of(kv.contiguous(), dims.qk + dims.v);
  at::Tensor query = at::empty(from_q.sizes(), q.options()),
             key = at::empty(from_q.sizes(), q.options());
  put_query(from_q, query, dims, rotation);
  put(from_kv.narrow(-1, 0, dims.qk), key.narrow(-1, 0, dims.qk), nullptr);
  key.narrow(-1, dims.qk, dims.rotated).copy_(rotate(k_pos.unsqueeze(2), rotation));
  // detach(): the view gets its history from this op, not from kv.
  const Tensors heads = recording.finish(
      {.outputs = {query, key, from_kv.narrow(-1, dims.qk, dims.v).detach()},
       .backward = [dims, interleaved = rotation.interleaved](BackwardPass& pass) -> Tensors {
         return heads_backward(pass, dims, interleaved);
       },
       .num_differentiable = 3});
  return {heads[0], heads[1], heads[2]};
}

}  // namespace megatron
