#include "megatron/parallel/regions.h"

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"
#include "megatron/transformer/differentiable.h"

namespace megatron {
namespace {

enum class Passage { identity, all_reduce, all_gather, reduce_scatter, slice, gather_features, slice_features };

at::Tensor pass(Passage passage, const at::Tensor& x, const Axis& axis, const char* what) {
  switch (passage) {
    case Passage::identity:
      return x.alias();
    case Passage::all_reduce: {
      const at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
      all_reduce_(axis, sum, what);
      return sum;
    }
    case Passage::all_gather:
      return all_gather(axis, x, what);
    case Passage::reduce_scatter:
      return reduce_scatter(axis, x, what);
    case Passage::slice: {
      MEGATRON_CHECK(x.size(0) % axis.size == 0, "a sequence of ", x.size(0), " cannot be split over ", axis.name, "=", axis.size);
      const std::int64_t length = x.size(0) / axis.size;
      return x.narrow(0, axis.rank * length, length).contiguous();
    }
    case Passage::gather_features: {
      const at::Tensor parts = all_gather(axis, x.reshape({1, -1, x.size(-1)}), what);
      auto shape = x.sizes().vec();
      shape.back() *= axis.size;
      return parts.transpose(0, 1).reshape(shape);
    }
    case Passage::slice_features: {
      const std::int64_t length = x.size(-1) / axis.size;
      return x.narrow(-1, axis.rank * length, length).contiguous();
    }
  }
  MEGATRON_CHECK(false, "no such passage");
}

at::Tensor region(const at::Tensor& x, const Axis& axis, const char* what, Passage forward, Passage backward) {
  if (axis.size == 1) return x;
  return differentiable({.name = "RegionBackward"}, {x}, [&] {
           return Recorded{.outputs = {pass(forward, x, axis, what)}, .saved = {}, .backward = [axis, what, backward](BackwardPass& call) -> Tensors {
                             return {pass(backward, call.gradients[0], axis, what)};
                           }};
         })
      .front();
}

}  // namespace

at::Tensor copy_to_split(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::identity, Passage::all_reduce);
}

at::Tensor reduce_from_split(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::all_reduce, Passage::identity);
}

at::Tensor gather_from_split(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::gather_features, Passage::slice_features);
}

at::Tensor gather_from_sequence(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::all_gather, Passage::reduce_scatter);
}

at::Tensor reduce_scatter_to_sequence(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::reduce_scatter, Passage::all_gather);
}

at::Tensor scatter_to_sequence(const at::Tensor& x, const Axis& axis, const char* what) {
  return region(x, axis, what, Passage::slice, Passage::all_gather);
}

}  // namespace megatron
