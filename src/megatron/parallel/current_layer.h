// Names the layer that a thread computes, so that calls of a group can say for which layer they
// are made. Forward sets it; Recording (ops/differentiable.h) hands it on to backward, which other
// threads may run.
#pragma once

#include <memory>
#include <string>

namespace megatron {

/// Path of a module, such as "decoder.layers.3"; null outside of every layer.
using LayerName = std::shared_ptr<const std::string>;

/// Returns the layer that this thread computes.
const LayerName& current_layer();

/// Sets the layer of this thread until destruction.
class LayerScope {
 public:
  explicit LayerScope(LayerName layer);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  LayerName earlier_;
};

}  // namespace megatron
