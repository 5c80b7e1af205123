// Assembles the parameters of all tensor-parallel ranks into global tensors, so that tests can
// compare layouts.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "megatron/params/param_store.h"

namespace megatron {

inline at::Tensor slice_of(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), offset[d], shape[d]);
  return tensor;
}

/// Calls use(piece of `local`, the same piece of `global`) for every slice that the rank holds.
inline void for_each_slice(const Parameter& parameter, const at::Tensor& local,
                           const at::Tensor& global,
                           const std::function<void(at::Tensor local, at::Tensor global)>& use) {
  for (const TensorSlice& slice : parameter.slices()) {
    use(slice_of(local, slice.local_offset, slice.shape),
        slice_of(global, slice.global_offset, slice.shape));
  }
}

/// Tensors of global shape, assembled by the threads of all ranks.
class GlobalTensors {
 public:
  /// Adds the pieces of a rank. Pieces that several ranks hold must be bit-identical, and padding
  /// must be zero.
  void put(const Parameter& parameter, const at::Tensor& local) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(parameter.name());
    Entry& global = entry->second;
    if (is_new) {
      global.value = at::zeros(parameter.sharding().global_shape, local.options());
      global.known = at::zeros(parameter.sharding().global_shape, at::kBool);
    }
    at::Tensor padding = local.abs();
    for_each_slice(parameter, local, global.value, [&](const at::Tensor& mine, at::Tensor whole) {
      const at::Tensor known = known_part(global, mine, whole);
      EXPECT_TRUE(at::equal(at::where(known, whole, mine), mine))
          << "ranks differ in " << parameter.name();
      whole.copy_(mine);
    });
    for_each_slice(parameter, padding, global.known, [](at::Tensor mine, at::Tensor known) {
      mine.zero_();
      known.fill_(true);
    });
    EXPECT_EQ(padding.sum().item<double>(), 0) << "padding of " << parameter.name();
  }

  /// Returns the tensors. Every element must have come from some rank.
  std::map<std::string, at::Tensor> take() const {
    std::map<std::string, at::Tensor> result;
    for (const auto& [name, entry] : entries_) {
      EXPECT_TRUE(entry.known.all().item<bool>()) << name << " is not held whole";
      result[name] = entry.value;
    }
    return result;
  }

 private:
  struct Entry {
    at::Tensor value, known;
  };
  /// Returns the part of `known` that corresponds to `whole`, a view of the entry's value.
  static at::Tensor known_part(const Entry& entry, const at::Tensor& mine,
                               const at::Tensor& whole) {
    return entry.known.as_strided(mine.sizes(), whole.strides(), whole.storage_offset());
  }
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

/// Returns a tensor of the parameter's global shape with irregular values in (−scale, scale), the
/// same on every layout.
inline at::Tensor irregular_like(const Parameter& parameter, double scale) {
  const Shape& shape = parameter.sharding().global_shape;
  return (at::sin(at::arange(num_elements(shape), at::kDouble) * 1.7 + 0.3) * scale).view(shape);
}

/// Adds irregular values to every weight, so that no norm or bias is neutral. The values are the
/// same on every layout.
inline void disturb(const ParamStore& store, double scale) {
  for (const Parameter* parameter : store.parameters()) {
    for_each_slice(*parameter, parameter->value(), irregular_like(*parameter, scale),
                   [](const at::Tensor& mine, const at::Tensor& change) { mine.add_(change); });
  }
}

}  // namespace megatron
