// Compares gradients with central differences in float64, for inputs and parameters alike.
//
//   at::Tensor x = random_input({3, 2, 4});
//   check_gradients([&] { return weighted_sum(layer.forward(x)); }, {x}, &store);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace megatron {

class ParamStore;

/// Returns Σ yᵢ·cᵢ with fixed irregular c: a scalar whose gradient differs for every element of y.
at::Tensor weighted_sum(const at::Tensor& y);

/// Returns a float64 leaf with irregular values in (−scale, scale).
at::Tensor random_input(at::IntArrayRef shape, double scale = 1, double phase = 0);

struct GradientCheckOptions {
  double step = 1e-5;
  double tolerance = 2e-8;         ///< Relative to max(1, |gradient|).
  std::int64_t max_elements = 24;  ///< Number of evenly spread elements checked per tensor.
};

/// Compares `gradient` with the derivative of `loss` by elements of `tensor`, which must be a view
/// of the memory that `loss` reads.
void compare_gradient(const std::function<at::Tensor()>& loss, const at::Tensor& tensor,
                      const at::Tensor& gradient, const std::string& name,
                      const GradientCheckOptions& options);

/// Checks the gradients of the float64 scalar `loss` by `inputs` (leaves) and by every parameter of
/// `store` (may be null). Also checks that a second backward adds to the parameters' gradients.
void check_gradients(const std::function<at::Tensor()>& loss, const std::vector<at::Tensor>& inputs,
                     ParamStore* store, const GradientCheckOptions& options = {});

/// Returns max |a − b| / max(1, max |b|).
double difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace megatron
