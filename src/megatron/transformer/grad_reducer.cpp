#include "megatron/transformer/grad_reducer.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace megatron {
namespace {

/// What is left to do when an operation is over.
class ThenWork : public Work {
 public:
  ThenWork(PendingWork first, std::function<void()> then) : first_(std::move(first)), then_(std::move(then)) {}
  void wait() override {
    first_->wait();
    if (then_) std::exchange(then_, nullptr)();
  }

 private:
  PendingWork first_;
  std::function<void()> then_;
};

/// A reduce-scatter that sends 16 bits and adds in float32.
PendingWork start_wide_scatter(const at::Tensor& own, const at::Tensor& grad, const Axis& axis, bool averages) {
  const at::Tensor parts = at::empty_like(grad);
  PendingWork exchange = axis.comm->start_all_to_all(parts, grad, "gradients");
  return std::make_unique<ThenWork>(std::move(exchange), [=, size = axis.size] {
    const at::Tensor by_rank = parts.view({size, -1});
    at::Tensor sum = by_rank[0].to(at::kFloat);
    for (std::int64_t rank = 1; rank < size; ++rank) sum.add_(by_rank[rank]);
    if (averages) sum.div_(static_cast<double>(size));
    at::Tensor(own).copy_(sum);
  });
}

}  // namespace

GradReducer::GradReducer(const std::vector<ParamBucket>& buckets, const DataParallel& options) : buckets_(buckets), options_(options) {}

void GradReducer::start(std::size_t bucket) { works_.push_back(started(buckets_.at(bucket))); }

PendingWork GradReducer::started(const ParamBucket& bucket) const {
  const ReduceOp op = options_.averages ? ReduceOp::average : ReduceOp::sum;
  const Axis &shard = options_.shard, &replica = options_.replica;
  if (shard.size == 1) return replica.comm->start_all_reduce(bucket.grad, "gradients", op);
  const at::Tensor own = bucket.own(bucket.grad);
  const bool is_wide = options_.accumulates_in_fp32 && bucket.grad.element_size() == 2;
  PendingWork scatter =
      is_wide ? start_wide_scatter(own, bucket.grad, shard, options_.averages) : shard.comm->start_reduce_scatter(own, bucket.grad, "gradients", op);
  if (replica.size == 1) return scatter;
  return std::make_unique<ThenWork>(std::move(scatter), [own, op, comm = replica.comm] { comm->all_reduce(own, "gradients of instances", op); });
}

void GradReducer::finish() {
  for (const PendingWork& work : works_) work->wait();
  works_.clear();
}

}  // namespace megatron
