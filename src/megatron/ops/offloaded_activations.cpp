#include "megatron/ops/offloaded_activations.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace megatron {

/// A storage that some ops of a layer have saved views of.
struct OffloadPass::Stored {
  /// Held weakly, so that no other storage gets its address while the pass lasts.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::unique_ptr<OffloadedTensor> offloaded;
  std::int64_t num_readers = 0;
  at::Tensor value = {};  ///< from the first reader to the last

  void prefetch() {
    if (offloaded != nullptr) offloaded->prefetch();
  }
  at::Tensor take() {
    if (offloaded != nullptr) value = std::exchange(offloaded, nullptr)->get();
    return --num_readers > 0 ? value : std::exchange(value, at::Tensor());
  }
};

/// The tensors of a layer in one pass.
struct OffloadPass::Layer {
  std::vector<std::weak_ptr<Stored>> tensors;
  std::shared_ptr<Layer> before;
  bool is_in_backward = false;

  void prefetch() const {
    for (const auto& weak : tensors)
      if (const auto tensor = weak.lock()) tensor->prefetch();
  }
  /// Starts to read the tensors that backward needs after this layer's.
  void begin_backward() {
    if (std::exchange(is_in_backward, true)) return;
    prefetch();
    if (before != nullptr) before->prefetch();
    before = nullptr;
  }
};

OffloadPass::OffloadPass(OffloadStore& store, const Options& options)
    : store_(store), min_elements_(options.min_elements) {
  for (const at::Tensor& tensor : options.shared)
    if (tensor.defined()) shared_.insert(tensor.storage().unsafeGetStorageImpl());
}

OffloadedLayer::OffloadedLayer(OffloadPass& pass)
    : pass_(pass), layer_(std::make_shared<OffloadPass::Layer>()) {
  layer_->before = std::exchange(pass.last_, layer_);
}

/// A view of an offloaded storage, as an op saved it.
class OffloadedLayer::View final : public SavedTensor {
 public:
  View(std::shared_ptr<OffloadPass::Layer> layer, std::shared_ptr<OffloadPass::Stored> tensor,
       const at::Tensor& saved)
      : layer_(std::move(layer)),
        tensor_(std::move(tensor)),
        view_(saved),
        type_(saved.scalar_type()) {
    ++tensor_->num_readers;
  }
  at::Tensor take() override {
    layer_->begin_backward();
    return view_.of(std::exchange(tensor_, nullptr)->take().view(type_));
  }

 private:
  std::shared_ptr<OffloadPass::Layer> layer_;
  std::shared_ptr<OffloadPass::Stored> tensor_;
  StorageView view_;
  at::ScalarType type_;
};

std::shared_ptr<SavedTensor> OffloadedLayer::save(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const c10::StorageImpl* const key = storage.unsafeGetStorageImpl();
  if (tensor.numel() < pass_.min_elements_ || pass_.shared_.contains(key)) return nullptr;
  auto found = tensors_.find(key);
  if (found == tensors_.end()) {
    at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte));
    bytes.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
    auto offloaded = std::make_shared<OffloadPass::Stored>(OffloadPass::Stored{
        .storage = storage.getWeakStorageImpl(), .offloaded = pass_.store_.put(std::move(bytes))});
    layer_->tensors.push_back(offloaded);
    found = tensors_.emplace(key, std::move(offloaded)).first;
  }
  return std::make_shared<View>(layer_, found->second, tensor);
}

}  // namespace megatron
