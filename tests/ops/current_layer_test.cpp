// The layer of a forward pass is also that of its backward, on whatever thread that runs.
#include "megatron/parallel/current_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

#include "megatron/ops/differentiable.h"

namespace megatron {
namespace {

LayerName named(const char* name) { return std::make_shared<const std::string>(name); }

/// Returns 2 x, and notes the layer in which its gradient is computed.
at::Tensor doubled(const at::Tensor& x, std::string& layer_of_backward) {
  Recording recording({"doubled"}, {x});
  return recording.finish(x * 2, {}, [&](BackwardPass& pass) -> Tensors {
    layer_of_backward = current_layer() ? *current_layer() : "";
    return {pass.gradients[0] * 2};
  });
}

TEST(CurrentLayer, ScopesNest) {
  EXPECT_EQ(current_layer(), nullptr);
  {
    const LayerScope outer(named("decoder.layers.0"));
    {
      const LayerScope inner(named("decoder.layers.1"));
      EXPECT_EQ(*current_layer(), "decoder.layers.1");
    }
    EXPECT_EQ(*current_layer(), "decoder.layers.0");
    std::thread([] { EXPECT_EQ(current_layer(), nullptr) << "each thread has its own"; }).join();
  }
  EXPECT_EQ(current_layer(), nullptr);
}

TEST(CurrentLayer, BackwardHasThatOfForward) {
  std::string first, second;
  const at::Tensor x = at::ones({3}).requires_grad_();
  at::Tensor y;
  {
    const LayerScope scope(named("decoder.layers.0"));
    y = doubled(x, first);
  }
  {
    const LayerScope scope(named("decoder.layers.1"));
    y = doubled(y, second);
  }
  y.sum().backward();
  EXPECT_EQ(first, "decoder.layers.0");
  EXPECT_EQ(second, "decoder.layers.1");
  EXPECT_EQ(current_layer(), nullptr);
}

}  // namespace
}  // namespace megatron
