#include "megatron/params/unit_gradients.h"

#include <algorithm>
#include <utility>

#include "megatron/params/grad_reducer.h"

namespace megatron {

UnitGradients::UnitGradients(const std::vector<ParamBucket>& buckets, c10::Device device,
                             Owner owner)
    : buckets_(buckets),
      owner_(std::move(owner)),
      buffers_(device),
      is_fresh_(buckets.size(), true) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const ParamBucket& bucket = buckets[b];
    units_.resize(std::max(units_.size(), bucket.unit + 1));
    if (!bucket.shards_gradients()) continue;
    Unit& unit = units_[bucket.unit];
    unit.buckets.push_back(b);
    unit.num_bytes += bucket.size * static_cast<std::int64_t>(bucket.slice_grad.element_size());
    overlaps_ = bucket.data_parallel->overlaps_grad_reduce;
  }
  std::vector<std::int64_t> sizes;
  for (const Unit& unit : units_) sizes.push_back(unit.num_bytes);
  buffers_.reserve(sizes, overlaps_ ? 2 : 1);
}

void UnitGradients::begin_step() {
  complete_from(0);
  for (auto& [unit, buffer] : std::exchange(open_, {})) {
    for (const std::size_t b : units_[unit].buckets) owner_.bind(b, {});
    buffers_.give_back(std::move(buffer));
  }
  is_fresh_.assign(buckets_.size(), true);
}

void UnitGradients::open(std::size_t index) {
  const std::size_t unit = buckets_[index].unit;
  reduce_before(unit);
  if (open_.contains(unit)) return;
  // What still waits is of the backward pass before. It had the forward pass to complete, and the
  // buffer of its last unit, an embedding, fits the first unit of this pass, an output layer.
  complete_from(unit);
  const at::Tensor buffer = buffers_.take(units_[unit].num_bytes);
  BufferCursor cursor(buffer);
  for (const std::size_t b : units_[unit].buckets)
    owner_.bind(b, cursor.next(buckets_[b].size, buckets_[b].slice_grad.scalar_type()));
  open_.emplace(unit, buffer);
}

void UnitGradients::end_backward() { reduce_before(units_.size()); }

void UnitGradients::finish() {
  end_backward();
  complete_from(0);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ParamBucket& bucket = buckets_[b];
    if (!bucket.shards_gradients()) continue;
    if (is_fresh_[b]) at::Tensor(bucket.slice_grad).zero_();
    const DataParallelOptions& options = *bucket.data_parallel;
    const Axis& replica = options.replica;
    if (replica.size == 1) continue;
    const char* what = "gradients of instances";
    if (bucket.own_size == bucket.slice_size) {
      replica.comm->all_reduce(bucket.slice_grad, what, reduction_of(options));
    } else {
      replica.comm
          ->start_reduce_scatter(bucket.own_grad, bucket.slice_grad, what, reduction_of(options))
          ->wait();
    }
  }
}

std::int64_t UnitGradients::held_bytes() const {
  std::int64_t bytes = buffers_.free_bytes();
  for (const auto& [unit, buffer] : open_) bytes += buffer.numel();
  for (const Reduction& reduction : reductions_) bytes += reduction.buffer.numel();
  return bytes;
}

void UnitGradients::reduce_before(std::size_t unit) {
  while (!open_.empty() && open_.begin()->first < unit) {
    auto first = open_.extract(open_.begin());
    complete_from(0);  // so that one buffer at most waits
    reductions_.push_back(start_reduction(first.key(), std::move(first.mapped())));
    if (!overlaps_) complete_oldest();
  }
}

UnitGradients::Reduction UnitGradients::start_reduction(std::size_t unit, at::Tensor buffer) {
  Reduction reduction{.unit = unit, .buffer = std::move(buffer)};
  BufferCursor cursor(reduction.buffer);
  for (const std::size_t b : units_[unit].buckets) {
    const ParamBucket& bucket = buckets_[b];
    owner_.zero_without_contribution(b);
    owner_.bind(b, {});
    at::Tensor whole = cursor.next(bucket.size, bucket.slice_grad.scalar_type());
    scale_for_average(whole, *bucket.data_parallel);
    const bool is_first = is_fresh_[b];
    is_fresh_[b] = false;
    // A later contribution is reduced in its place in the buffer.
    reduction.parts.push_back(is_first ? bucket.slice_grad : bucket.slice(whole));
    reduction.sums.push_back(is_first ? at::Tensor() : bucket.slice_grad);
    reduction.works.push_back(
        start_reduce_scatter(reduction.parts.back(), whole, *bucket.data_parallel));
  }
  return reduction;
}

void UnitGradients::complete_from(std::size_t unit) {
  while (!reductions_.empty() && reductions_.front().unit >= unit) complete_oldest();
}

void UnitGradients::complete_oldest() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  for (std::size_t i = 0; i < reduction.works.size(); ++i) {
    reduction.works[i]->wait();
    if (reduction.sums[i].defined()) reduction.sums[i].add_(reduction.parts[i]);
  }
  reduction.works.clear();
  reduction.parts.clear();  // they are views of the buffer
  buffers_.give_back(std::move(reduction.buffer));
}

}  // namespace megatron
