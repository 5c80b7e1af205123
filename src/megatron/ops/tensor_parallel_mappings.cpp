#include "megatron/ops/tensor_parallel_mappings.h"

#include <numeric>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

enum class Mapping {
  identity,
  all_reduce,
  all_gather,
  reduce_scatter,
  gather_features,
  slice_features
};

at::Tensor apply(Mapping mapping, const at::Tensor& x, const Axis& axis, const char* what) {
  switch (mapping) {
    case Mapping::identity:
      return x.alias();
    case Mapping::all_reduce: {
      const at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
      all_reduce_(axis, sum, what);
      return sum;
    }
    case Mapping::all_gather:
      return all_gather(axis, x, what);
    case Mapping::reduce_scatter:
      return reduce_scatter(axis, x, what);
    case Mapping::gather_features: {
      const at::Tensor parts = all_gather(axis, x.reshape({1, -1, x.size(-1)}), what);
      auto shape = x.sizes().vec();
      shape.back() *= axis.size;
      return parts.transpose(0, 1).reshape(shape);
    }
    case Mapping::slice_features: {
      const std::int64_t length = x.size(-1) / axis.size;
      return x.narrow(-1, axis.rank * length, length).contiguous();
    }
  }
  MEGATRON_CHECK(false, "there is no mapping ", int(mapping));
}

at::Tensor apply_mapping(const at::Tensor& x, const Axis& axis, const char* what, Mapping forward,
                         Mapping backward) {
  if (axis.size == 1) return x;
  Recording recording({.name = "RegionBackward"}, {x});
  return recording.finish(apply(forward, x, axis, what), {},
                          [axis, what, backward](BackwardPass& pass) -> Tensors {
                            return {apply(backward, pass.gradients[0], axis, what)};
                          });
}

at::Tensor own_slice(const at::Tensor& x, const Axis& axis) {
  const std::vector<std::int64_t> lengths = sequence_slices(x.size(0), axis);
  const auto own = lengths.begin() + axis.rank;
  return x.narrow(0, std::accumulate(lengths.begin(), own, std::int64_t{0}), *own).contiguous();
}

}  // namespace

at::Tensor copy_to_tensor_parallel_region(const at::Tensor& x, const Axis& axis, const char* what) {
  return apply_mapping(x, axis, what, Mapping::identity, Mapping::all_reduce);
}

at::Tensor reduce_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what) {
  return apply_mapping(x, axis, what, Mapping::all_reduce, Mapping::identity);
}

at::Tensor gather_from_tensor_parallel_region(const at::Tensor& x, const Axis& axis,
                                              const char* what) {
  return apply_mapping(x, axis, what, Mapping::gather_features, Mapping::slice_features);
}

at::Tensor gather_from_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                const char* what) {
  return apply_mapping(x, axis, what, Mapping::all_gather, Mapping::reduce_scatter);
}

at::Tensor reduce_scatter_to_sequence_parallel_region(const at::Tensor& x, const Axis& axis,
                                                      const char* what) {
  return apply_mapping(x, axis, what, Mapping::reduce_scatter, Mapping::all_gather);
}

std::vector<std::int64_t> sequence_slices(std::int64_t length, const Axis& axis) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t rank = 0; rank < axis.size; ++rank)
    lengths.push_back(length / axis.size + (rank < length % axis.size ? 1 : 0));
  return lengths;
}

at::Tensor scatter_replicated_sequence(const at::Tensor& x, const Axis& axis, const char* what) {
  if (axis.size == 1) return x;
  Recording recording({.name = "ScatterSequenceBackward"}, {x});
  return recording.finish(
      own_slice(x, axis), {}, [axis, what, length = x.size(0)](BackwardPass& pass) -> Tensors {
        return {
            all_gather(axis, pass.gradients[0].contiguous(), what, sequence_slices(length, axis))};
      });
}

at::Tensor gather_replicated_sequence(const at::Tensor& x, std::int64_t length, const Axis& axis,
                                      const char* what) {
  if (axis.size == 1) return x;
  Recording recording({.name = "GatherSequenceBackward"}, {x});
  return recording.finish(
      all_gather(axis, x.contiguous(), what, sequence_slices(length, axis)), {},
      [axis](BackwardPass& pass) -> Tensors { return {own_slice(pass.gradients[0], axis)}; });
}

}  // namespace megatron
