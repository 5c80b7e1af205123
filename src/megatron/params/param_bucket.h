// A bucket: parameters that share storage and are communicated together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/params/bucket_layout.h"

namespace megatron {

/// A contiguous run of parameters. `value` and `grad` are flat and of one dtype each; parameter i
/// starts at element offsets[i].
struct ParamBucket : BucketLayout {
  at::Tensor value = {};  ///< undefined while the storage is given back (ParamStore::bind_values)
  /// Undefined in a store without gradients, when !is_trained and when shards_gradients().
  at::Tensor grad = {};
  /// This rank's slices, where has_unit_values() and where gradients are sharded; else undefined.
  /// Offloaded values have one only between ParamStore::open_values() and close_values().
  at::Tensor slice_value = {}, slice_grad = {};
  /// The parts that this rank updates: views of the tensors above. own_grad is defined in a store
  /// with gradients when is_trained.
  at::Tensor own_value = {}, own_grad = {};
  /// This rank's slice; the whole bucket unless is_sharded().
  std::int64_t slice_begin = 0, slice_size = 0;
  /// The part of the slice that this rank updates: all of it, unless replicas divide it.
  std::int64_t own_begin = 0, own_size = 0;

  /// Returns the part that this rank updates of a tensor that has the layout of the bucket.
  at::Tensor own(const at::Tensor& flat) const { return flat.narrow(0, own_begin, own_size); }
  /// Returns this rank's slice of a tensor that has the layout of the bucket.
  at::Tensor slice(const at::Tensor& flat) const { return flat.narrow(0, slice_begin, slice_size); }
  /// Returns the local tensor of parameter `index` in a tensor that has the layout of the bucket.
  at::Tensor of_parameter(const at::Tensor& flat, std::size_t index) const {
    const Shape shape = parameters[index]->local_shape();
    return flat.narrow(0, offsets[index], num_elements(shape)).view(shape);
  }
  /// Returns whether every rank of data_parallel->shard owns another slice.
  bool is_sharded() const { return is_trained ? data_parallel->shard.size > 1 : shards_values(); }
  /// Returns whether this rank keeps only its slice of the gradients.
  bool shards_gradients() const {
    return is_trained && is_sharded() && data_parallel->strategy >= ShardingStrategy::optim_grads;
  }
  /// Returns whether this rank keeps only its slice of the values, also of frozen ones.
  bool shards_values() const {
    return !is_state && data_parallel->shard.size > 1 &&
           data_parallel->strategy == ShardingStrategy::optim_grads_params;
  }
  /// Returns whether values are in memory only while their unit of the model is used.
  bool has_unit_values() const { return shards_values() || offloads_values; }
  /// Returns whether updated values are all-gathered at once, because every rank keeps them whole.
  bool gathers_after_update() const { return is_sharded() && !shards_values(); }
  /// Returns the values that this rank keeps in memory between steps, and their gradients.
  const at::Tensor& kept_value() const { return has_unit_values() ? slice_value : value; }
  const at::Tensor& kept_grad() const { return shards_gradients() ? slice_grad : grad; }
  /// Returns the part that this rank updates of a tensor that has the layout of its slice.
  at::Tensor own_of_slice(const at::Tensor& slice) const {
    return slice.narrow(0, own_begin - slice_begin, own_size);
  }
  /// Returns the place in the bucket where the values begin that have float32 main weights beside
  /// them, and their number: what this rank updates, and all that it keeps of a precise bucket.
  std::int64_t main_begin() const {
    if (!is_precise) return own_begin;
    return shards_values() ? slice_begin : 0;
  }
  std::int64_t main_size() const {
    if (!is_precise) return own_size;
    return shards_values() ? slice_size : size;
  }
  /// Returns the ranks that hold the same elements as this one: of all that the bucket has, or, for
  /// what `is_sharded`, of the part that this rank updates.
  const Axis& holders(bool is_sharded) const {
    static const Axis alone;
    if (!is_sharded) return data_parallel->all;
    return own_size < slice_size ? alone : data_parallel->replica;
  }
  /// Returns the number of bytes of all values with, for precise weights, their float32 form.
  std::int64_t complete_bytes() const {
    constexpr std::int64_t kFloatBytes = 4;
    return value_bytes() + (is_precise ? kFloatBytes * size : 0);
  }
  /// Returns the number of bytes of all values.
  std::int64_t value_bytes() const {
    return size * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
  /// Returns the number of bytes of this rank's slice of the values.
  std::int64_t slice_bytes() const {
    return slice_size * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
};

/// The part of a trained parameter that this rank updates. It is the whole
/// parameter without a distributed optimizer.
struct ParameterPiece {
  Parameter* parameter = nullptr;
  std::int64_t first = 0, count = 0;  ///< range of elements in the flattened local tensor
  std::size_t bucket = 0;
  std::int64_t offset = 0;  ///< offset of the first element in the bucket

  /// Returns the same part of a tensor of the parameter's local shape.
  at::Tensor of(const at::Tensor& local) const { return local.view({-1}).narrow(0, first, count); }
  /// Returns the piece in a tensor that has the layout of own_value of `of_piece`, the piece's
  /// bucket.
  at::Tensor of_own(const at::Tensor& own, const ParamBucket& of_piece) const {
    return own.narrow(0, offset - of_piece.own_begin, count);
  }
};

/// Returns a piece that covers a parameter's whole local tensor, in bucket `bucket`.
inline ParameterPiece whole_piece(Parameter& parameter, std::size_t bucket = 0) {
  return {.parameter = &parameter,
          .first = 0,
          .count = num_elements(parameter.local_shape()),
          .bucket = bucket};
}

}  // namespace megatron
