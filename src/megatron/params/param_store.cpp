#include "megatron/params/param_store.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/params/grad_error.h"
#include "megatron/params/init.h"

namespace megatron {
namespace {

ParamBucket allocate(BucketLayout layout, const ParamStore::Options& options) {
  ParamBucket bucket{std::move(layout)};
  bucket.slice_size = bucket.own_size = bucket.size;
  if (bucket.is_sharded()) {
    const Axis& shard = bucket.data_parallel->shard;
    bucket.slice_size = bucket.own_size = bucket.size / shard.size;
    bucket.slice_begin = bucket.own_begin = bucket.slice_size * shard.rank;
  }
  if (bucket.shards_values() && options.with_gradients &&
      bucket.data_parallel->shards_over_replicas) {
    const Axis& replica = bucket.data_parallel->replica;
    bucket.own_size /= replica.size;
    bucket.own_begin += bucket.own_size * replica.rank;
  }
  const auto tensor_options = at::TensorOptions().device(options.device);
  const auto zeros = [&](bool is_slice, at::ScalarType dtype) {
    return at::zeros({is_slice ? bucket.slice_size : bucket.size}, tensor_options.dtype(dtype));
  };
  if (!bucket.offloads_values) {
    (bucket.shards_values() ? bucket.slice_value : bucket.value) =
        zeros(bucket.shards_values(), bucket.dtype);
    bucket.own_value =
        bucket.shards_values() ? bucket.own_of_slice(bucket.slice_value) : bucket.own(bucket.value);
  }
  if (!options.with_gradients || !bucket.is_trained) return bucket;
  (bucket.shards_gradients() ? bucket.slice_grad : bucket.grad) =
      zeros(bucket.shards_gradients(), options.grad_dtype.value_or(options.dtype));
  bucket.own_grad =
      bucket.shards_gradients() ? bucket.own_of_slice(bucket.slice_grad) : bucket.own(bucket.grad);
  return bucket;
}

std::vector<ReplicaGroups> replica_groups(const ParamStore::Options& options) {
  std::vector<ReplicaGroups> groups{
      {.data_parallel = options.data_parallel, .model = options.model}};
  if (options.experts) groups.push_back(*options.experts);
  return groups;
}

/// Returns the group of the ranks that share a weight; null without communicators.
std::shared_ptr<Comm> holders_group(const Parameter& parameter,
                                    const ParamStore::Options& options) {
  if (options.communicators == nullptr || options.pipeline.comm == nullptr) return nullptr;
  std::vector<std::int64_t> ranks;
  for (const std::int64_t holder : parameter.spec().holders.ranks)
    ranks.push_back(options.pipeline.comm->ranks().at(static_cast<std::size_t>(holder)));
  return options.communicators->group(ranks, "embd");
}

bool has_axis(const Parameter& parameter, std::string_view name) {
  return std::ranges::any_of(parameter.axes(),
                             [&](const Axis& axis) { return axis.name == name && axis.size > 1; });
}

void append_pieces(const ParamBucket& bucket, std::size_t index,
                   std::vector<ParameterPiece>& pieces) {
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
    const bool is_precise = separates_precise && spec.tags.precise;
    return {.is_precise = is_precise,
            .is_trained = parameter.is_trained(),
            .is_state = spec.kind == ParameterKind::state,
            .offloads_values = parameter.is_trained() && !is_precise &&
                               options_.offloaded_values.contains(&parameter),
            .dtype = spec.dtype.value_or(options_.dtype),
            .data_parallel = &groups_[group_of(parameter)].data_parallel};
  };
  for (BucketLayout& layout : bucket_layouts(declared, kind_of, options_.unit_starts,
                                             options_.data_parallel.unit_elements))
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
    bind_gradients(b, bucket.grad);
    for (Parameter* parameter : bucket.parameters) {
      parameter->dtype_ = bucket.dtype;
      contribution_counts_[parameter->index_].bucket = b;
    }
    append_pieces(bucket, b, bucket.is_trained ? pieces_ : untrained_pieces_);
  }
  for (auto* pieces : {&pieces_, &untrained_pieces_})
    std::ranges::sort(*pieces, {},
                      [](const ParameterPiece& piece) { return piece.parameter->index_; });
  bind_sharded();
  if (!options_.with_gradients) return;
  if (std::ranges::any_of(
          groups_, [](const ReplicaGroups& groups) { return groups.data_parallel.all.size > 1; }))
    reducer_.emplace(buckets_);
  tp_gradients_.emplace(pieces_, buckets_);
  for (const Parameter* parameter : parameters_) {
    if (parameter->is_trained() && parameter->is_shared())
      shared_buckets_.emplace_back(contribution_counts_[parameter->index_].bucket,
                                   holders_group(*parameter, options_));
  }
}

void ParamStore::bind_sharded() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ParamBucket& bucket = buckets_[b];
    if (!bucket.offloads_values) continue;
    MEGATRON_CHECK(!bucket.gathers_after_update() && c10::elementSize(bucket.dtype) == 2,
                   "offloaded weights are ", bucket.dtype, ", or gathered after the update");
    if (!offloaded_values_)
      offloaded_values_ = std::make_unique<OffloadedValues>(options_.value_store);
    offloaded_values_->add(b, bucket.slice_size,
                           at::TensorOptions().device(options_.device).dtype(bucket.dtype));
  }
  if (std::ranges::any_of(buckets_, &ParamBucket::has_unit_values))
    unit_values_.emplace(
        buckets_, options_.device,
        [this](std::size_t index, at::Tensor value) { bind_values(index, std::move(value)); },
        offloaded_values_.get());
  if (!options_.with_gradients || !std::ranges::any_of(buckets_, &ParamBucket::shards_gradients))
    return;
  unit_gradients_.emplace(
      buckets_, options_.device,
      UnitGradients::Owner{
          .bind = [this](std::size_t index,
                         const at::Tensor& grad) { bind_gradients(index, grad); },
          .zero_without_contribution = [this](std::size_t index) { zero_fresh(buckets_[index]); }});
}

/// Parameters have no contribution yet in the new storage.
void ParamStore::bind_gradients(std::size_t index, const at::Tensor& grad) {
  const ParamBucket& bucket = buckets_[index];
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    bucket.parameters[i]->grad_ = grad.defined() ? bucket.of_parameter(grad, i) : at::Tensor();
    bucket.parameters[i]->fresh_ = true;
  }
}

void ParamStore::bind_values(std::size_t index, at::Tensor value) {
  ParamBucket& bucket = buckets_.at(index);
  MEGATRON_CHECK(!value.defined() || (value.is_contiguous() && value.numel() == bucket.size &&
                                      value.scalar_type() == bucket.dtype &&
                                      value.device().type() == options_.device.type()),
                 value.numel(), " ", value.scalar_type(), " on ", value.device(), " for ",
                 bucket.size, " ", bucket.dtype, " of ", bucket.parameters.front()->name());
  bucket.value = std::move(value);
  if (!bucket.has_unit_values())
    bucket.own_value = bucket.value.defined() ? bucket.own(bucket.value) : at::Tensor();
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    bucket.parameters[i]->release_packed();
    bucket.parameters[i]->value_ =
        bucket.value.defined() ? bucket.of_parameter(bucket.value, i) : at::Tensor();
  }
}

ParamStore::~ParamStore() {
  for (Parameter* parameter : parameters_) {
    parameter->release_packed();
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

void ParamStore::zero_gradients(std::int64_t num_microbatches) {
  for (Parameter* parameter : parameters_) parameter->fresh_ = true;
  for (ContributionCount& book : contribution_counts_) book.seen = 0;
  num_started_ = 0;
  num_expected_.clear();
  if (unit_gradients_) {
    unit_gradients_->begin_step();
    // Whole gradients that gather_gradients() has made.
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].shards_gradients()) bind_gradients(b, {});
    }
  }
  if (unit_values_) unit_values_->begin_pass();
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
  for (Parameter* parameter : bucket.parameters) {
    if (!parameter->grad_.defined()) continue;
    if (parameter->fresh_) parameter->grad_.zero_();
    parameter->fresh_ = false;
  }
}

void ParamStore::finalize_local_gradients() {
  if (unit_gradients_) unit_gradients_->finish();
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
  // A shared weight has its own bucket. The bucket and its slices are the same on all its ranks.
  for (const auto& [index, holders] : shared_buckets_) {
    const ParamBucket& bucket = buckets_[index];
    MEGATRON_CHECK(holders != nullptr, bucket.parameters.front()->name(),
                   " is shared by several stages: give the pipeline and its communicators");
    holders->all_reduce(bucket.own_grad, "gradients of shared weights");
  }
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

void ParamStore::gather_gradients() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const ParamBucket& bucket = buckets_[b];
    if (!bucket.own_grad.defined() || !bucket.is_sharded()) continue;
    const Axis &shard = bucket.data_parallel->shard, &replica = bucket.data_parallel->replica;
    if (bucket.own_size < bucket.slice_size)
      replica.comm->all_gather(bucket.slice_grad, bucket.own_grad, "gradients of instances");
    const at::Tensor whole = bucket.shards_gradients()
                                 ? at::empty({bucket.size}, bucket.own_grad.options())
                                 : bucket.grad;
    const at::Tensor& slice = bucket.shards_gradients() ? bucket.slice_grad : bucket.own_grad;
    shard.comm->all_gather(whole, slice, "whole gradients");
    if (bucket.shards_gradients()) bind_gradients(b, whole);
  }
}

void ParamStore::contribute(Parameter& parameter,
                            std::function<void(at::Tensor& grad, bool fresh)> write) {
  MEGATRON_CHECK(options_.with_gradients, "backward through ", parameter.name(),
                 ", whose store has no gradients");
  if (queue_ == nullptr) return apply_contribution(parameter, write);
  queue_->push_back(
      [this, &parameter, write = std::move(write)] { apply_contribution(parameter, write); });
}

void ParamStore::apply_contribution(
    Parameter& parameter, const std::function<void(at::Tensor& grad, bool fresh)>& write) {
  const std::size_t bucket = contribution_counts_[parameter.index_].bucket;
  if (buckets_[bucket].shards_gradients()) {
    unit_gradients_->open(bucket);
    write(parameter.grad_, std::exchange(parameter.fresh_, false));
    return;
  }
  MEGATRON_CHECK(num_started_ <= bucket, parameter.name(),
                 " received more contributions to its gradient than in earlier steps");
  if (grad_errors_.empty()) {
    write(parameter.grad_, parameter.fresh_);
  } else {
    const std::vector<Parameter*>& parameters = buckets_[bucket].parameters;
    const auto found = std::ranges::find(parameters, &parameter);
    at::Tensor error = buckets_[bucket].of_parameter(
        grad_errors_[bucket], static_cast<std::size_t>(found - parameters.begin()));
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

std::vector<std::string> all_parameter_names(const ParamStore& store,
                                             bool (*select)(const Parameter&)) {
  std::vector<std::string> mine;
  for (const Parameter* parameter : store.parameters()) {
    if (select(*parameter)) mine.push_back(parameter->name());
  }
  return all_gather_unique_names({store.model_axis(), store.device()}, mine);
}

}  // namespace megatron
