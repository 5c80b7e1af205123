#include "megatron/training/params_norm.h"

#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>

namespace megatron {

double params_norm(const ParamStore& weights) {
  double sum = 0;
  for (const Parameter* parameter : weights.parameters()) {
    const double norm = at::linalg_vector_norm(parameter->value(), 2, std::nullopt, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

}  // namespace megatron
