#include "megatron/ops/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// Ends the second run once it has computed every tensor that backward needs.
struct EndOfRecomputation {};

/// One call of recomputed().
class Recomputation final : public std::enable_shared_from_this<Recomputation> {
 public:
  struct Input {
    std::shared_ptr<SavedTensor> tensor;  ///< null: the input is undefined
    bool has_gradient;
  };
  Recomputation(RecomputedForward forward, std::vector<Input> inputs, bool computes_outputs)
      : forward_(std::move(forward)),
        inputs_(std::move(inputs)),
        computes_outputs_(computes_outputs) {}

  Tensors first_run(const Tensors& inputs) {
    FirstRun hooks(*this);
    const SavedTensorHooksScope scope(&hooks);
    return forward_(inputs, replay_);
  }

  /// Returns tensor `index` of those that the first run saved.
  at::Tensor take(std::size_t index) {
    if (!has_run_again_) second_run();
    return std::exchange(values_.at(index), at::Tensor());
  }
  /// Returns an output of the forward pass.
  at::Tensor take_output(std::size_t index) {
    if (!has_run_again_) second_run();
    return std::exchange(outputs_.at(index), at::Tensor());
  }

 private:
  /// Keeps the number of a tensor in place of the tensor.
  class FirstRun final : public SavedTensorHooks {
   public:
    explicit FirstRun(Recomputation& owner) : owner_(owner) {}
    std::shared_ptr<SavedTensor> save(const at::Tensor&) override;
    bool take_offer(const at::Tensor&, const std::function<at::Tensor()>&) override { return true; }

   private:
    Recomputation& owner_;
  };

  /// Collects the tensors for the backward functions of the first run. Its own graph has none.
  class SecondRun final : public SavedTensorHooks {
   public:
    explicit SecondRun(Recomputation& owner) : owner_(owner) {}
    std::shared_ptr<SavedTensor> save(const at::Tensor& tensor) override;
    bool take_offer(const at::Tensor&, const std::function<at::Tensor()>&) override { return true; }

   private:
    Recomputation& owner_;
  };

  void second_run() {
    has_run_again_ = true;
    values_.reserve(num_saved_);
    replay_.begin_second_run();
    Tensors inputs;
    for (const Input& input : std::exchange(inputs_, {}))
      inputs.push_back(input.tensor != nullptr
                           ? input.tensor->take().set_requires_grad(input.has_gradient)
                           : at::Tensor());
    SecondRun hooks(*this);
    const SavedTensorHooksScope scope(&hooks);
    const at::AutoGradMode records(true);
    bool ended_early = false;
    try {
      for (const at::Tensor& output : forward_(inputs, replay_))
        if (computes_outputs_) outputs_.push_back(output.detach());
    } catch (const EndOfRecomputation&) {
      ended_early = true;
    }
    MEGATRON_CHECK(values_.size() == num_saved_, "a second forward pass saved ", values_.size(),
                   " tensors", ended_early ? " before it ended early" : "", ", the first ",
                   num_saved_);
    forward_ = nullptr;
  }

  RecomputedForward forward_;
  std::vector<Input> inputs_;
  ForwardReplay replay_;
  std::size_t num_saved_ = 0;
  std::vector<at::Tensor> values_, outputs_;
  const bool computes_outputs_;
  bool has_run_again_ = false;
};

class RecomputedTensor final : public SavedTensor {
 public:
  RecomputedTensor(std::shared_ptr<Recomputation> owner, std::size_t index)
      : owner_(std::move(owner)), index_(index) {}
  at::Tensor take() override { return owner_->take(index_); }

 private:
  std::shared_ptr<Recomputation> owner_;
  std::size_t index_;
};

/// Stands for a tensor of a graph without a backward pass.
class NoTensor final : public SavedTensor {
 public:
  at::Tensor take() override { throw InternalError("backward of a second forward pass"); }
};

std::shared_ptr<SavedTensor> Recomputation::FirstRun::save(const at::Tensor&) {
  return std::make_shared<RecomputedTensor>(owner_.shared_from_this(), owner_.num_saved_++);
}

std::shared_ptr<SavedTensor> Recomputation::SecondRun::save(const at::Tensor& tensor) {
  owner_.values_.push_back(tensor);
  if (owner_.values_.size() == owner_.num_saved_ && !owner_.computes_outputs_)
    throw EndOfRecomputation();
  return std::make_shared<NoTensor>();
}

/// A tensor of which each rank of an axis keeps an equal slice.
class DistributedTensor final : public SavedTensor {
 public:
  DistributedTensor(const at::Tensor& tensor, const Axis& axis)
      : axis_(axis), sizes_(tensor.sizes().vec()) {
    const std::int64_t count = (tensor.numel() + axis.size - 1) / axis.size;
    const at::Tensor flat = at::constant_pad_nd(tensor.contiguous().view({-1}),
                                                {0, count * axis.size - tensor.numel()});
    slice_ = save_for_backward(flat.narrow(0, axis.rank * count, count).clone());
  }

  at::Tensor take() override {
    const at::Tensor slice = slice_->take(),
                     flat = at::empty({slice.numel() * axis_.size}, slice.options());
    axis_.comm->all_gather(flat, slice, "distributed saved activations");
    const at::Tensor whole = flat.narrow(0, 0, c10::multiply_integers(sizes_)).view(sizes_);
    return whole;
  }

 private:
  Axis axis_;
  std::vector<std::int64_t> sizes_;
  std::shared_ptr<SavedTensor> slice_;
};

}  // namespace

at::Tensor ForwardReplay::keep(const at::Tensor& value) {
  if (is_second_run_) return values_.at(next_++);
  values_.push_back(value);
  return value;
}

Tensors recomputed(const Tensors& inputs, const RecomputedForward& forward,
                   const RecomputeOptions& options) {
  if (!at::GradMode::is_enabled()) {
    ForwardReplay replay;
    return forward(inputs, replay);
  }
  const bool is_distributed =
      options.distributes_over != nullptr && options.distributes_over->size > 1;
  std::vector<Recomputation::Input> kept;
  for (const at::Tensor& input : inputs)
    kept.push_back({is_distributed && input.defined()
                        ? std::make_shared<DistributedTensor>(input, *options.distributes_over)
                        : save_for_backward(input),
                    input.requires_grad()});
  const auto call =
      std::make_shared<Recomputation>(forward, std::move(kept), options.outputs != nullptr);
  Tensors outputs = call->first_run(inputs);
  for (std::size_t i = 0; i < outputs.size() && options.outputs != nullptr; ++i)
    options.outputs->take_offer(outputs[i], [call, i] { return call->take_output(i); });
  return outputs;
}

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
