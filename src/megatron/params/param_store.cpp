#include "megatron/params/param_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/params/bucket_layout.h"
#include "megatron/params/grad_error.h"
#include "megatron/params/init.h"

namespace megatron {
namespace {

ParamBucket allocate(BucketLayout layout, const ParamStore::Options& options) {
  const Axis& shard = layout.kind.data_parallel->shard;
  ParamBucket bucket{.value = {},
                     .grad = {},
                     .parameters = std::move(layout.parameters),
                     .offsets = std::move(layout.offsets),
                     .is_precise = layout.kind.is_precise,
                     .is_trained = layout.kind.is_trained,
                     .data_parallel = layout.kind.data_parallel,
                     .size = layout.size,
                     .dtype = layout.kind.dtype,
                     .own_begin = 0,
                     .own_size = layout.size};
  if (bucket.is_sharded()) {
    bucket.own_size = layout.size / shard.size;
    bucket.own_begin = bucket.own_size * shard.rank;
  }
  const auto tensor_options = at::TensorOptions().device(options.device);
  bucket.value = at::zeros({layout.size}, tensor_options.dtype(layout.kind.dtype));
  if (options.with_gradients && bucket.is_trained)
    bucket.grad =
        at::zeros({layout.size}, tensor_options.dtype(options.grad_dtype.value_or(options.dtype)));
  return bucket;
}

std::vector<ReplicaGroups> replica_groups(const ParamStore::Options& options) {
  std::vector<ReplicaGroups> groups{
      {.data_parallel = options.data_parallel, .model = options.model}};
  if (options.experts) groups.push_back(*options.experts);
  return groups;
}

bool has_axis(const Parameter& parameter, std::string_view name) {
  return std::ranges::any_of(parameter.axes(),
                             [&](const Axis& axis) { return axis.name == name && axis.size > 1; });
}

void append_pieces(const ParamBucket& bucket, std::size_t index,
                   std::vector<ParameterPiece>& pieces) {
  if (!bucket.is_trained) return;
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const std::int64_t offset = bucket.offsets[i],
                       size = num_elements(bucket.parameters[i]->local_shape());
    const std::int64_t begin = std::max(offset, bucket.own_begin),
                       end = std::min(offset + size, bucket.own_begin + bucket.own_size);
    if (begin >= end) continue;
    pieces.push_back({.parameter = bucket.parameters[i],
                      .first = begin - offset,
                      .count = end - begin,
                      .bucket = index,
                      .offset = begin});
  }
}

}  // namespace

ParamStore::ParamStore(const std::vector<Parameter*>& declared, Options options)
    : options_(std::move(options)), groups_(replica_groups(options_)) {
  for (Parameter* parameter : declared) {
    const bool is_new = by_name_.emplace(parameter->name(), parameter).second;
    MEGATRON_CHECK(is_new, "two parameters are named ", parameter->name());
  }
  parameters_ = declared;
  std::ranges::sort(parameters_, {}, &Parameter::name);
  const auto kind_of = [&](const Parameter& parameter) -> BucketKind {
    const ParameterSpec& spec = parameter.spec();
    MEGATRON_CHECK(!parameter.is_trained() || !spec.dtype, parameter.name(),
                   " is trained and has a dtype of its own");
    MEGATRON_CHECK(!spec.tags.expert || options_.experts || !has_axis(parameter, "ep"),
                   parameter.name(), " is divided over ep: give the groups of the experts");
    const bool separates_precise =
        options_.with_gradients && parameter.is_trained() && c10::elementSize(options_.dtype) == 2;
    return {.is_precise = separates_precise && spec.tags.precise,
            .is_trained = parameter.is_trained(),
            .dtype = spec.dtype.value_or(options_.dtype),
            .data_parallel = &groups_[group_of(parameter)].data_parallel};
  };
  for (BucketLayout& layout : bucket_layouts(declared, kind_of, options_.unit_starts))
    buckets_.push_back(allocate(std::move(layout), options_));
  for (const ParamBucket& bucket : buckets_) {
    if (!options_.has_grad_error_feedback) break;
    grad_errors_.push_back(bucket.grad.defined()
                               ? at::zeros({bucket.size}, bucket.grad.options().dtype(at::kChar))
                               : at::Tensor());
  }
  bind();
  for (const Parameter* parameter : parameters_) {
    if (parameter->spec().kind != ParameterKind::state) continue;
    MEGATRON_CHECK(parameter->spec().init.kind == Init::Kind::constant, parameter->name(),
                   " is a state, but its initial value is not a constant");
    initialize_parameter(*parameter, parameter->value(), /*seed=*/0);
  }
}

void ParamStore::bind() {
  contribution_counts_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i]->index_ = i;
    parameters_[i]->sink_ = this;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ParamBucket& bucket = buckets_[b];
    bind_values(b, bucket.value);
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      Parameter& parameter = *bucket.parameters[i];
      if (bucket.grad.defined()) parameter.grad_ = bucket.of_parameter(bucket.grad, i);
      contribution_counts_[parameter.index_].bucket = b;
    }
    append_pieces(bucket, b, pieces_);
  }
  std::ranges::sort(pieces_, {},
                    [](const ParameterPiece& piece) { return piece.parameter->index_; });
  if (!options_.with_gradients) return;
  if (std::ranges::any_of(
          groups_, [](const ReplicaGroups& groups) { return groups.data_parallel.all.size > 1; }))
    reducer_.emplace(buckets_);
  tp_gradients_.emplace(pieces_);
}

void ParamStore::bind_values(std::size_t index, at::Tensor value) {
  ParamBucket& bucket = buckets_.at(index);
  MEGATRON_CHECK(!value.defined() || (value.is_contiguous() && value.numel() == bucket.size &&
                                      value.scalar_type() == bucket.dtype &&
                                      value.device().type() == options_.device.type()),
                 "storage of another size, dtype or device for the bucket of ",
                 bucket.parameters.front()->name());
  bucket.value = std::move(value);
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
    bucket.parameters[i]->value_ =
        bucket.value.defined() ? bucket.of_parameter(bucket.value, i) : at::Tensor();
}

ParamStore::~ParamStore() {
  for (Parameter* parameter : parameters_) {
    parameter->value_ = parameter->grad_ = at::Tensor();
    parameter->sink_ = nullptr;
  }
}

Parameter* ParamStore::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second;
}

std::int64_t ParamStore::num_parameters() const {
  std::int64_t count = 0;
  for (const Parameter* parameter : parameters_) {
    if (parameter->spec().kind == ParameterKind::state) continue;
    for (const TensorSlice& slice : parameter->slices()) count += num_elements(slice.shape);
  }
  return count;
}

std::int64_t ParamStore::num_grad_error_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& error : grad_errors_)
    if (error.defined()) bytes += error.numel();
  return bytes;
}

void ParamStore::initialize(std::uint64_t seed) {
  for (const Parameter* parameter : parameters_)
    initialize_parameter(*parameter, parameter->value(), seed);
}

void ParamStore::zero_gradients(std::int64_t num_microbatches) {
  for (Parameter* parameter : parameters_) parameter->fresh_ = true;
  for (ContributionCount& book : contribution_counts_) book.seen = 0;
  num_started_ = 0;
  num_expected_.clear();
  num_microbatches_ = options_.data_parallel.overlaps_grad_reduce ? num_microbatches : 0;
  if (!is_counted_ || num_microbatches_ == 0) return;
  num_expected_.assign(buckets_.size(), 0);
  for (const ContributionCount& book : contribution_counts_)
    num_expected_[book.bucket] += book.per_microbatch > 0;
}

void ParamStore::record_contribution_counts() {
  if (is_counted_ || num_microbatches_ == 0) return;
  for (ContributionCount& book : contribution_counts_)
    book.per_microbatch = book.seen / num_microbatches_;
  is_counted_ = true;
}

void ParamStore::zero_fresh(const ParamBucket& bucket) {
  if (!bucket.grad.defined()) return;
  for (Parameter* parameter : bucket.parameters) {
    if (parameter->fresh_) parameter->grad_.zero_();
    parameter->fresh_ = false;
  }
}

void ParamStore::finalize_local_gradients() {
  for (const ParamBucket& bucket : buckets_) zero_fresh(bucket);
  num_expected_.clear();
}

void ParamStore::finalize_gradients() {
  record_contribution_counts();
  finalize_local_gradients();
  if (reducer_) {
    while (num_started_ < buckets_.size()) reducer_->start(num_started_++);
    reducer_->finish();
  }
  reduce_over_stages();
  tp_gradients_->sum();
}

void ParamStore::commit_gradients() {
  if (reducer_) reducer_->commit();
}

ParamStore::Deferral::Deferral(ParamStore& store, std::vector<std::function<void()>>& queue)
    : store_(store) {
  MEGATRON_CHECK(store.queue_ == nullptr, "contributions are deferred already");
  store.queue_ = &queue;
}

/// A shared weight has its own bucket. The bucket and its slices are the same on all its ranks.
void ParamStore::reduce_over_stages() {
  for (const ParamBucket& bucket : buckets_) {
    if (bucket.parameters.front()->spec().sharing == StageSharing::none || !bucket.grad.defined())
      continue;
    MEGATRON_CHECK(options_.embedding.size >= 2, bucket.parameters.front()->name(),
                   " is shared by several stages: give the group of their ranks");
    options_.embedding.comm->all_reduce(bucket.own(bucket.grad), "shared embedding gradients");
  }
}

void ParamStore::gather_gradients() {
  for (const ParamBucket& bucket : buckets_) {
    if (bucket.grad.defined() && bucket.is_sharded())
      bucket.data_parallel->shard.comm->all_gather(bucket.grad, bucket.own(bucket.grad),
                                                   "whole gradients");
  }
}

void ParamStore::contribute(Parameter& parameter,
                            std::function<void(at::Tensor& grad, bool fresh)> write) {
  MEGATRON_CHECK(parameter.grad_.defined(), "backward through ", parameter.name(),
                 ", whose store has no gradients");
  if (queue_ == nullptr) return apply_contribution(parameter, write);
  queue_->push_back(
      [this, &parameter, write = std::move(write)] { apply_contribution(parameter, write); });
}

void ParamStore::apply_contribution(
    Parameter& parameter, const std::function<void(at::Tensor& grad, bool fresh)>& write) {
  MEGATRON_CHECK(num_started_ <= contribution_counts_[parameter.index_].bucket, parameter.name(),
                 " received more contributions to its gradient than in earlier steps");
  if (grad_errors_.empty()) {
    write(parameter.grad_, parameter.fresh_);
  } else {
    const std::size_t b = contribution_counts_[parameter.index_].bucket;
    const auto found = std::ranges::find(buckets_[b].parameters, &parameter);
    at::Tensor error = buckets_[b].of_parameter(
        grad_errors_[b], static_cast<std::size_t>(found - buckets_[b].parameters.begin()));
    add_with_error_feedback(parameter.grad_, error, parameter.fresh_, write);
  }
  parameter.fresh_ = false;
  if (reducer_) count(parameter);
}

void ParamStore::count(const Parameter& parameter) {
  ContributionCount& book = contribution_counts_[parameter.index_];
  ++book.seen;
  if (num_expected_.empty() || book.seen != book.per_microbatch * num_microbatches_) return;
  --num_expected_[book.bucket];
  start_complete_buckets();
}

void ParamStore::start_complete_buckets() {
  for (; num_started_ < buckets_.size() && num_expected_[num_started_] == 0; ++num_started_) {
    zero_fresh(buckets_[num_started_]);
    reducer_->start(num_started_);
  }
}

}  // namespace megatron
