#include "megatron/transformer/fixed_blocks.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu_backward.h>

#include <algorithm>
#include <functional>

#include "megatron/base/error.h"
#include "megatron/transformer/activation.h"
#include "megatron/transformer/autograd_function.h"

namespace megatron {
namespace {

constexpr std::int64_t kElementsOfABlock = 16384;  ///< below the size from which ATen divides an operation itself

/// Runs `work(first row, number of rows)` for the blocks of `rows` rows of `width` elements.
void for_each_block(std::int64_t rows, std::int64_t width, const std::function<void(std::int64_t, std::int64_t)>& work) {
  const std::int64_t each = std::max<std::int64_t>(1, kElementsOfABlock / width), blocks = (rows + each - 1) / each;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_grad;
    for (std::int64_t block = begin; block < end; ++block) {
      work(block * each, std::min(each, rows - block * each));
    }
  });
}

/// dy·f′(x).
at::Tensor derivative(const at::Tensor& dy, const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return at::gelu_backward(dy, x, "none");
    case Activation::gelu_tanh:
      return at::gelu_backward(dy, x, "tanh");
    case Activation::relu:
      return dy * (x > 0);
    case Activation::squared_relu:
      return dy * at::relu(x) * 2;
    case Activation::silu:
      return at::silu_backward(dy, x);
    case Activation::quick_gelu: {
      const at::Tensor s = at::sigmoid(x * 1.702);
      return dy * (s + x * s * (1 - s) * 1.702);
    }
  }
  throw InternalError("an activation without a derivative");
}

at::Tensor rows_of(const at::Tensor& x) { return x.contiguous().view({-1, x.size(-1)}); }

struct BlockwiseActivation : torch::autograd::Function<BlockwiseActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t kind, bool gated) {
    const at::Tensor rows = rows_of(x);
    const auto activation = static_cast<Activation>(kind);
    at::DimVector shape(x.sizes());
    if (gated) shape.back() /= 2;
    at::Tensor y = at::empty({rows.size(0), shape.back()}, x.options());
    for_each_block(rows.size(0), rows.size(1), [&](std::int64_t first, std::int64_t count) {
      const at::Tensor block = rows.narrow(0, first, count);
      y.narrow(0, first, count).copy_(gated ? activate_gated(block, activation) : activate(block, activation));
    });
    context->save_for_backward({rows});
    context->saved_data["kind"] = kind;
    context->saved_data["gated"] = gated;
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor rows = context->get_saved_variables()[0], dy = rows_of(gradients[0]);
    const auto kind = static_cast<Activation>(context->saved_data["kind"].toInt());
    const bool gated = context->saved_data["gated"].toBool();
    at::Tensor dx = at::empty_like(rows);
    for_each_block(rows.size(0), rows.size(1), [&](std::int64_t first, std::int64_t count) {
      const at::Tensor x = rows.narrow(0, first, count), d = dy.narrow(0, first, count);
      at::Tensor into = dx.narrow(0, first, count);
      if (!gated) {
        into.copy_(derivative(d, x, kind));
        return;
      }
      const std::int64_t width = x.size(1) / 2;
      const at::Tensor gate = x.narrow(1, 0, width), up = x.narrow(1, width, width);
      into.narrow(1, 0, width).copy_(derivative(d * up, gate.contiguous(), kind));
      into.narrow(1, width, width).copy_(d * activate(gate, kind));
    });
    at::DimVector shape(gradients[0].sizes());
    shape.back() = rows.size(1);
    return {dx.view(shape), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool wants_determinism() { return at::globalContext().deterministicAlgorithms(); }

at::Tensor activate_in_fixed_blocks(const at::Tensor& x, Activation kind, bool gated) {
  return BlockwiseActivation::apply(x, static_cast<std::int64_t>(kind), gated);
}

}  // namespace megatron
