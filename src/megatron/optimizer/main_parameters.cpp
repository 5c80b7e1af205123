#include "megatron/optimizer/main_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "megatron/params/init.h"

namespace megatron {
namespace {

bool has_16_bits(const ParamBucket& bucket) {
  return bucket.is_trained && c10::elementSize(bucket.dtype) == 2;
}

bool is_gathered_after_update(const ParamBucket& bucket) {
  return bucket.is_sharded() && !bucket.shards_values();
}

/// Returns the values that are copied to float32: what this rank updates, and all that it keeps of
/// a precise bucket.
const at::Tensor& copied_values(const ParamBucket& bucket) {
  return bucket.is_precise ? bucket.kept_value() : bucket.own_value;
}

/// Returns the place in the bucket where copied_values() begin.
std::int64_t copied_begin(const ParamBucket& bucket) {
  if (!bucket.is_precise) return bucket.own_begin;
  return bucket.shards_values() ? bucket.slice_begin : 0;
}

}  // namespace

MainParameters::MainParameters(ParamStore& store)
    : store_(store),
      has_fp32_copies_(std::ranges::any_of(store.buckets(), has_16_bits)),
      sums_(store) {
  for (const ParamBucket& bucket : store.buckets()) {
    if (!has_fp32_copies_) break;
    fp32_copies_.emplace_back();
    if (!bucket.is_trained) continue;
    const at::Tensor& values = copied_values(bucket);
    fp32_copies_.back() = at::empty(values.sizes(), values.options().dtype(at::kFloat));
    if (!bucket.is_precise) continue;
    if (bucket.shards_values()) {
      store.unit_values()->set_main_slice(fp32_copies_.size() - 1, fp32_copies_.back());
      continue;
    }
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
      bucket.parameters[i]->set_main(bucket.of_parameter(fp32_copies_.back(), i));
  }
  for (const ParameterPiece& piece : store.pieces()) {
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    tensors_.push_back(has_fp32_copies_ ? fp32_copies_[piece.bucket].narrow(
                                              0, piece.offset - copied_begin(bucket), piece.count)
                                        : piece.of_own(bucket.own_value, bucket));
  }
  if (std::ranges::any_of(store.buckets(), is_gathered_after_update))
    param_gather_.emplace(store, fp32_copies_);
  copy_model_params_to_main_params();
}

MainParameters::~MainParameters() {
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (store_.buckets()[b].shards_values()) store_.unit_values()->set_main_slice(b, {});
  }
  for (Parameter* parameter : store_.parameters()) parameter->set_main({});
}

std::int64_t MainParameters::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& copy : fp32_copies_) {
    if (copy.defined()) bytes += static_cast<std::int64_t>(copy.nbytes());
  }
  return bytes;
}

void MainParameters::initialize(std::uint64_t seed) {
  wait_all_gather_params();
  if (!has_fp32_copies_) {
    store_.initialize(seed);
    return gather_slices();
  }
  std::size_t piece = 0;
  for (Parameter* parameter : store_.parameters()) {
    const bool is_owned = piece < tensors_.size() && pieces()[piece].parameter == parameter;
    const Shape shape = parameter->local_shape();
    const bool is_whole = is_owned && pieces()[piece].count == num_elements(shape);
    if (!parameter->is_trained()) {
      initialize_parameter(*parameter, parameter->value(), seed);
      continue;
    }
    const auto options = at::TensorOptions().dtype(at::kFloat).device(store_.device());
    const at::Tensor drawn = is_whole ? tensors_[piece].view(shape) : at::empty(shape, options);
    initialize_parameter(*parameter, drawn, seed);
    store_.set_value(*parameter, drawn);
    if (parameter->has_main()) at::Tensor(parameter->precise_value()).copy_(drawn);
    if (is_owned && !is_whole) tensors_[piece].copy_(pieces()[piece].of(drawn));
    piece += is_owned;
  }
  gather_slices();
}

void MainParameters::gather_slices() {
  if (store_.unit_values() == nullptr) return;
  for (std::size_t b = 0; b < store_.buckets().size(); ++b) {
    const ParamBucket& bucket = store_.buckets()[b];
    if (bucket.own_size == bucket.slice_size) continue;
    const Axis& replica = bucket.data_parallel->replica;
    const at::Tensor& slice =
        has_fp32_copies_ && bucket.is_precise ? fp32_copies_[b] : bucket.slice_value;
    replica.comm->all_gather(slice, bucket.own_of_slice(slice), "weights of instances");
  }
  store_.unit_values()->discard();
}

void MainParameters::copy_model_params_to_main_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (fp32_copies_[b].defined()) fp32_copies_[b].copy_(copied_values(store_.buckets()[b]));
  }
}

void MainParameters::copy_main_params_to_model_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (fp32_copies_[b].defined())
      at::Tensor(copied_values(store_.buckets()[b])).copy_(fp32_copies_[b]);
  }
  all_gather_params();
}

void MainParameters::all_gather_params() {
  gather_slices();
  if (param_gather_) param_gather_->start();
}

void MainParameters::wait_all_gather_params() {
  if (param_gather_) param_gather_->finish();
}

double MainParameters::norm() const {
  double sum = 0;
  for (const double norm : parameter_norms(sums_, store_, tensors_)) sum += norm * norm;
  return std::sqrt(sum);
}

}  // namespace megatron
