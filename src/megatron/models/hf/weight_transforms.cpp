// Shapes: g query groups, n query heads per group, d channels per head, i input features (absent
// for biases).
#include "megatron/models/hf/weight_transforms.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

struct Heads {
  std::int64_t groups, heads_per_group, width;
  std::int64_t query_rows() const { return groups * heads_per_group * width; }
  std::int64_t key_rows() const { return groups * width; }
};

Heads heads_of(const TransformerConfig& model) {
  const std::int64_t groups = model.query_groups();
  const std::int64_t width =
      model.kv_channels > 0 ? model.kv_channels : model.hidden_size / model.num_attention_heads;
  return {groups, model.num_attention_heads / groups, width};
}

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

at::Tensor by_group(const at::Tensor& tensor, std::int64_t groups) {
  Shape shape{groups, tensor.size(0) / groups};
  for (std::int64_t dim = 1; dim < tensor.dim(); ++dim) shape.push_back(tensor.size(dim));
  return tensor.reshape(shape);
}

at::Tensor interleave_groups(const Heads& heads, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v) {
  return at::cat({by_group(q, heads.groups), by_group(k, heads.groups), by_group(v, heads.groups)},
                 1)
      .flatten(0, 1);
}

std::vector<at::Tensor> split_groups(const Heads& heads, const at::Tensor& qkv) {
  const at::Tensor grouped = by_group(qkv, heads.groups);
  const std::int64_t queries = heads.heads_per_group * heads.width;
  return {grouped.narrow(1, 0, queries).flatten(0, 1),
          grouped.narrow(1, queries, heads.width).flatten(0, 1),
          grouped.narrow(1, queries + heads.width, heads.width).flatten(0, 1)};
}

at::Tensor flip(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor.t() : tensor; }

}  // namespace

std::vector<Shape> hf_shapes(WeightTransform transform, const TransformerConfig& model,
                             const Shape& ours) {
  const Heads heads = heads_of(model);
  const Shape flipped(ours.rbegin(), ours.rend());
  switch (transform) {
    case WeightTransform::copy:
      return {ours};
    case WeightTransform::transpose:
    case WeightTransform::gpt2_qkv:
      return {flipped};
    case WeightTransform::query_groups:
      return {with_rows(ours, heads.query_rows()), with_rows(ours, heads.key_rows()),
              with_rows(ours, heads.key_rows())};
    case WeightTransform::gate_up:
      return {with_rows(ours, ours[0] / 2), with_rows(ours, ours[0] / 2)};
    case WeightTransform::experts:
      return {static_cast<std::size_t>(ours[0]), Shape(ours.begin() + 1, ours.end())};
    case WeightTransform::experts_gate_up:
      return {static_cast<std::size_t>(2 * ours[0]),
              with_rows(Shape(ours.begin() + 1, ours.end()), ours[1] / 2)};
  }
  MEGATRON_CHECK(false, "unknown weight transform");
}

at::Tensor to_megatron(WeightTransform transform, const TransformerConfig& model,
                       const std::vector<at::Tensor>& theirs) {
  const Heads heads = heads_of(model);
  switch (transform) {
    case WeightTransform::copy:
      return theirs[0];
    case WeightTransform::transpose:
      return flip(theirs[0]).contiguous();
    case WeightTransform::query_groups:
      return interleave_groups(heads, theirs[0], theirs[1], theirs[2]);
    case WeightTransform::gate_up:
      return at::cat({theirs[0], theirs[1]}, 0);
    case WeightTransform::gpt2_qkv: {
      const at::Tensor rows = flip(theirs[0]);
      const std::int64_t q = heads.query_rows(), k = heads.key_rows();
      return interleave_groups(heads, rows.narrow(0, 0, q), rows.narrow(0, q, k),
                               rows.narrow(0, q + k, k));
    }
    case WeightTransform::experts:
      return at::stack(theirs);
    case WeightTransform::experts_gate_up: {
      Shape shape = theirs[0].sizes().vec();
      shape[0] *= 2;
      shape.insert(shape.begin(), static_cast<std::int64_t>(theirs.size()) / 2);
      return at::cat(theirs, 0).view(shape);
    }
  }
  MEGATRON_CHECK(false, "unknown weight transform");
}

std::vector<at::Tensor> to_hf(WeightTransform transform, const TransformerConfig& model,
                              const at::Tensor& ours) {
  switch (transform) {
    case WeightTransform::copy:
      return {ours};
    case WeightTransform::transpose:
      return {flip(ours).contiguous()};
    case WeightTransform::query_groups:
      return split_groups(heads_of(model), ours);
    case WeightTransform::gate_up:
      return {ours.narrow(0, 0, ours.size(0) / 2),
              ours.narrow(0, ours.size(0) / 2, ours.size(0) / 2)};
    case WeightTransform::gpt2_qkv:
      return {flip(at::cat(split_groups(heads_of(model), ours), 0)).contiguous()};
    case WeightTransform::experts:
      return ours.unbind(0);
    case WeightTransform::experts_gate_up:
      return ours.flatten(0, 1).split(ours.size(1) / 2, 0);
  }
  MEGATRON_CHECK(false, "unknown weight transform");
}

}  // namespace megatron
