#include "megatron/params/grad_reducer.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace megatron {
namespace {

/// A reduce-scatter that sends 16-bit values and adds them in float32.
PendingWork start_wide_scatter(const at::Tensor& own, const at::Tensor& grad, const Axis& axis,
                               bool averages) {
  const at::Tensor parts = at::empty_like(grad);
  PendingWork exchange = axis.comm->start_all_to_all(parts, grad, "gradients");
  return and_then(std::move(exchange), [=, size = axis.size] {
    const at::Tensor by_rank = parts.view({size, -1});
    at::Tensor sum = by_rank[0].to(at::kFloat);
    for (std::int64_t rank = 1; rank < size; ++rank) sum.add_(by_rank[rank]);
    if (averages) sum.div_(static_cast<double>(size));
    at::Tensor(own).copy_(sum);
  });
}

}  // namespace

void scale_for_average(at::Tensor& grad, const DataParallelOptions& options) {
  if (!options.averages || options.num_averaged <= 0 || options.num_averaged == options.all.size)
    return;
  grad.mul_(static_cast<double>(options.all.size) / static_cast<double>(options.num_averaged));
}

PendingWork start_reduce_scatter(const at::Tensor& own, const at::Tensor& flat,
                                 const DataParallelOptions& options) {
  if (options.accumulates_in_fp32 && flat.element_size() == 2)
    return start_wide_scatter(own, flat, options.shard, options.averages);
  return options.shard.comm->start_reduce_scatter(own, flat, "gradients", reduction_of(options));
}

GradReducer::GradReducer(const std::vector<ParamBucket>& buckets) : buckets_(buckets) {
  for (const ParamBucket& bucket : buckets) {
    if (bucket.grad.defined() && bucket.data_parallel->all.size > 1)
      compressions_.try_emplace(bucket.data_parallel, make_grad_compression(*bucket.data_parallel));
  }
}

void GradReducer::start(std::size_t index) {
  const ParamBucket& bucket = buckets_.at(index);
  const DataParallelOptions& options = *bucket.data_parallel;
  if (!bucket.grad.defined()) return;
  at::Tensor grad = bucket.grad;
  scale_for_average(grad, options);
  if (options.all.size == 1) return;
  const auto sum = [&](const at::Tensor& flat) { return start_reduce(bucket, flat); };
  const auto& compression = compressions_.at(bucket.data_parallel);
  works_.push_back(compression ? compression->start(bucket, sum) : sum(bucket.grad));
}

void GradReducer::commit() {
  for (const auto& [group, compression] : compressions_) {
    if (compression) compression->commit();
  }
}

PendingWork GradReducer::start_reduce(const ParamBucket& bucket, const at::Tensor& flat) const {
  const DataParallelOptions& options = *bucket.data_parallel;
  const ReduceOp op = reduction_of(options);
  const Axis &shard = options.shard, &replica = options.replica;
  if (shard.size == 1) return replica.comm->start_all_reduce(flat, "gradients", op);
  const at::Tensor own = bucket.own(flat);
  PendingWork scatter = start_reduce_scatter(own, flat, options);
  if (replica.size == 1) return scatter;
  return and_then(std::move(scatter), [own, op, comm = replica.comm] {
    comm->all_reduce(own, "gradients of instances", op);
  });
}

void GradReducer::finish() {
  for (const PendingWork& work : works_) work->wait();
  works_.clear();
}

}  // namespace megatron
