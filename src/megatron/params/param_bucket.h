// A bucket: parameters that share storage and are communicated together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/params/data_parallel.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// A contiguous run of parameters. `value` and `grad` are flat and of one dtype each; parameter i
/// starts at element offsets[i] (bucket_layout.h).
struct ParamBucket {
  at::Tensor value;  ///< undefined while the storage is given back (ParamStore::bind_values)
  at::Tensor grad;   ///< undefined in a store without gradients and when !is_trained
  std::vector<Parameter*> parameters;
  std::vector<std::int64_t> offsets;
  bool is_precise = false, is_trained = true;
  const DataParallelOptions* data_parallel = nullptr;  ///< the ranks that hold the same weights
  std::int64_t size = 0;                               ///< number of elements
  at::ScalarType dtype = at::kFloat;                   ///< dtype of `value`
  /// This rank's slice; the whole bucket without a distributed optimizer and when !is_trained.
  std::int64_t own_begin = 0, own_size = 0;

  /// Returns this rank's slice of a tensor that has the layout of the bucket.
  at::Tensor own(const at::Tensor& flat) const { return flat.narrow(0, own_begin, own_size); }
  /// Returns the local tensor of parameter `index` in a tensor that has the layout of the bucket.
  at::Tensor of_parameter(const at::Tensor& flat, std::size_t index) const {
    const Shape shape = parameters[index]->local_shape();
    return flat.narrow(0, offsets[index], num_elements(shape)).view(shape);
  }
  /// Returns whether every rank of data_parallel->shard owns another slice.
  bool is_sharded() const { return is_trained && data_parallel->shard.size > 1; }
};

/// The part of a trained parameter that lies in this rank's slice of its bucket. It is the whole
/// parameter without a distributed optimizer.
struct ParameterPiece {
  Parameter* parameter = nullptr;
  std::int64_t first = 0, count = 0;  ///< range of elements in the flattened local tensor
  std::size_t bucket = 0;
  std::int64_t offset = 0;  ///< offset of the first element in the bucket

  /// Returns the same part of a tensor of the parameter's local shape.
  at::Tensor of(const at::Tensor& local) const { return local.view({-1}).narrow(0, first, count); }
};

}  // namespace megatron
