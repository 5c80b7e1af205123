// Parameters that share storage and travel together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/params/data_parallel.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// A contiguous run of parameters: `value` and `grad`, each of one dtype, are flat, parameter i
/// starts at element offsets[i] (bucket_layout.h).
struct ParamBucket {
  at::Tensor value, grad;
  std::vector<Parameter*> parameters;
  std::vector<std::int64_t> offsets;
  bool is_precise = false;
  std::int64_t own_begin = 0,
               own_size = 0;  ///< this rank's slice: all of it without a distributed optimizer

  /// The slice of a tensor that lies as the bucket does.
  at::Tensor own(const at::Tensor& flat) const { return flat.narrow(0, own_begin, own_size); }
};

/// The part of a parameter that lies in this rank's slice of its bucket: all of it without a
/// distributed optimizer.
struct ParameterPiece {
  Parameter* parameter = nullptr;
  std::int64_t first = 0, count = 0;  ///< elements of the flattened local tensor
  std::size_t bucket = 0;
  std::int64_t offset = 0;  ///< of its first element in the bucket

  /// The same part of a tensor of the parameter's local shape.
  at::Tensor of(const at::Tensor& local) const { return local.view({-1}).narrow(0, first, count); }
};

}  // namespace megatron
