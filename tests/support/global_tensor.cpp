#include "support/global_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace megatron {

at::Tensor slice_of(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), offset[d], shape[d]);
  return tensor;
}

void for_each_slice(const Parameter& parameter, const at::Tensor& local, const at::Tensor& global,
                    const std::function<void(at::Tensor local, at::Tensor global)>& use) {
  for (const TensorSlice& slice : parameter.slices()) {
    use(slice_of(local, slice.local_offset, slice.shape),
        slice_of(global, slice.global_offset, slice.shape));
  }
}

void GlobalTensors::put(const Parameter& parameter, const at::Tensor& local) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = entries_.try_emplace(parameter.name());
  Entry& global = entry->second;
  if (is_new) {
    global.value = at::zeros(parameter.sharding().global_shape, local.options());
    global.known = at::zeros(parameter.sharding().global_shape, at::kBool);
  }
  at::Tensor padding = local.abs();
  for_each_slice(parameter, local, global.value, [&](const at::Tensor& mine, at::Tensor whole) {
    // The part of `known` that corresponds to `whole`, a view of the entry's value.
    const at::Tensor known =
        global.known.as_strided(mine.sizes(), whole.strides(), whole.storage_offset());
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

std::map<std::string, at::Tensor> GlobalTensors::take() const {
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, entry] : entries_) {
    EXPECT_TRUE(entry.known.all().item<bool>()) << name << " is not held whole";
    result[name] = entry.value;
  }
  return result;
}

at::Tensor irregular_like(const Parameter& parameter, double scale) {
  const Shape& shape = parameter.sharding().global_shape;
  return (at::sin(at::arange(num_elements(shape), at::kDouble) * 1.7 + 0.3) * scale).view(shape);
}

void disturb(const ParamStore& store, double scale) {
  for (const Parameter* parameter : store.parameters()) {
    for_each_slice(*parameter, parameter->value(), irregular_like(*parameter, scale),
                   [](const at::Tensor& mine, const at::Tensor& change) { mine.add_(change); });
  }
}

}  // namespace megatron
