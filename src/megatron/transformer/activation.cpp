#include "megatron/transformer/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>

#include "megatron/base/error.h"

namespace megatron {

at::Tensor activate(const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::relu:
      return at::relu(x);
    case Activation::squared_relu:
      return at::square(at::relu(x));
    case Activation::silu:
      return at::silu(x);
    case Activation::quick_gelu:
      return x * at::sigmoid(x * 1.702);
  }
  throw InternalError("an activation without a formula");
}

at::Tensor activate_gated(const at::Tensor& x, Activation kind) {
  const std::int64_t width = x.size(-1) / 2;
  return activate(x.narrow(-1, 0, width), kind) * x.narrow(-1, width, width);
}

}  // namespace megatron
