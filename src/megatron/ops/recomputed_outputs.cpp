#include "megatron/ops/recomputed_outputs.h"

#include <utility>

#include "megatron/ops/storage_view.h"

namespace megatron {

/// An output that several ops may read in backward. It is computed for the first of them and freed
/// with the last.
class RecomputedOutputs::Output {
 public:
  Output(const at::Tensor& output, std::function<at::Tensor()> compute)
      : storage_(output.storage().getWeakStorageImpl()),
        offset_(output.storage_offset()),
        compute_(std::move(compute)) {}

  void add_reader() { ++num_readers_; }
  std::int64_t offset() const { return offset_; }
  at::Tensor take() {
    if (!value_.defined()) value_ = compute_();
    if (--num_readers_ > 0) return value_;
    compute_ = nullptr;
    return std::exchange(value_, at::Tensor());
  }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  std::int64_t offset_;
  std::function<at::Tensor()> compute_;
  std::int64_t num_readers_ = 0;
  at::Tensor value_;
};

/// A view of an output, as a reader saved it.
class RecomputedOutputs::View final : public SavedTensor {
 public:
  View(std::shared_ptr<Output> output, const at::Tensor& tensor)
      : output_(std::move(output)), view_(tensor, output_->offset()) {
    output_->add_reader();
  }
  at::Tensor take() override { return view_.of(std::exchange(output_, nullptr)->take()); }

 private:
  std::shared_ptr<Output> output_;
  StorageView view_;
};

std::shared_ptr<SavedTensor> RecomputedOutputs::save(const at::Tensor& tensor) {
  const auto found = outputs_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == outputs_.end()) return nullptr;
  return std::make_shared<View>(found->second, tensor);
}

bool RecomputedOutputs::take_offer(const at::Tensor& output,
                                   const std::function<at::Tensor()>& compute) {
  outputs_[output.storage().unsafeGetStorageImpl()] = std::make_shared<Output>(output, compute);
  return true;
}

}  // namespace megatron
