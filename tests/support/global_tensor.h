// Assembles the parameters of all tensor-parallel ranks into global tensors, so that tests can
// compare layouts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "megatron/params/param_store.h"

namespace megatron {

at::Tensor slice_of(at::Tensor tensor, const Shape& offset, const Shape& shape);

/// Calls use(piece of `local`, the same piece of `global`) for every slice that the rank holds.
void for_each_slice(const Parameter& parameter, const at::Tensor& local, const at::Tensor& global,
                    const std::function<void(at::Tensor local, at::Tensor global)>& use);

/// Tensors of global shape, assembled by the threads of all ranks.
class GlobalTensors {
 public:
  /// Adds the pieces of a rank. Pieces that several ranks hold must be bit-identical, and padding
  /// must be zero.
  void put(const Parameter& parameter, const at::Tensor& local);

  /// Returns the tensors. Every element must have come from some rank.
  std::map<std::string, at::Tensor> take() const;

 private:
  struct Entry {
    at::Tensor value, known;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

/// Returns a tensor of the parameter's global shape with irregular values in (−scale, scale), the
/// same on every layout.
at::Tensor irregular_like(const Parameter& parameter, double scale);

/// Adds irregular values to every weight, so that no norm or bias is neutral. The values are the
/// same on every layout.
void disturb(const ParamStore& store, double scale);

}  // namespace megatron
