// Activations that wait in an OffloadStore between forward and backward. They are read back in the
// order of backward: when it reaches a layer, the tensors of the layer before it are on their way.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "megatron/ops/differentiable.h"
#include "megatron/ops/offload_store.h"

namespace megatron {

/// What one forward pass of a pipeline stage offloads.
class OffloadPass {
 public:
  struct Options {
    std::int64_t min_elements = 0;  ///< smaller tensors stay
    /// Tensors that all layers share, such as rotary tables. They stay.
    std::vector<at::Tensor> shared = {};
  };
  /// `store` must outlive the backward pass.
  OffloadPass(OffloadStore& store, const Options& options);

 private:
  friend class OffloadedLayer;
  struct Stored;
  struct Layer;

  OffloadStore& store_;
  std::int64_t min_elements_;
  std::unordered_set<const c10::StorageImpl*> shared_;
  std::shared_ptr<Layer> last_;  ///< the newest layer; each refers to the one before it
};

/// Hooks under which ops offload what backward reads. There is one for each layer of a pass, made
/// in the order of the forward pass.
class OffloadedLayer final : public SavedTensorHooks {
 public:
  explicit OffloadedLayer(OffloadPass& pass);
  std::shared_ptr<SavedTensor> save(const at::Tensor& tensor) override;

 private:
  class View;

  OffloadPass& pass_;
  std::shared_ptr<OffloadPass::Layer> layer_;
  /// By storage, because ops save views of one tensor.
  std::unordered_map<const c10::StorageImpl*, std::shared_ptr<OffloadPass::Stored>> tensors_;
};

}  // namespace megatron
