#include "megatron/optimizer/main_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "megatron/params/init.h"

namespace megatron {
namespace {

bool has_16_bits(const ParamBucket& bucket) {
  return bucket.is_trained && bucket.value.element_size() == 2;
}

bool is_sharded(const ParamBucket& bucket) { return bucket.is_sharded(); }

}  // namespace

MainParameters::MainParameters(ParamStore& store)
    : store_(store),
      has_fp32_copies_(std::ranges::any_of(store.buckets(), has_16_bits)),
      sums_(store) {
  for (const ParamBucket& bucket : store.buckets()) {
    if (!has_fp32_copies_) break;
    fp32_copies_.emplace_back();
    if (!bucket.is_trained) continue;
    const std::int64_t size = bucket.is_precise ? bucket.value.numel() : bucket.own_size;
    fp32_copies_.back() = at::empty({size}, bucket.value.options().dtype(at::kFloat));
    for (std::size_t i = 0; bucket.is_precise && i < bucket.parameters.size(); ++i)
      bucket.parameters[i]->set_main(bucket.of_parameter(fp32_copies_.back(), i));
  }
  for (const ParameterPiece& piece : store.pieces()) {
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    const at::Tensor& whole = has_fp32_copies_ ? fp32_copies_[piece.bucket] : bucket.value;
    const bool is_slice = whole.numel() < bucket.value.numel();
    tensors_.push_back(
        whole.narrow(0, piece.offset - (is_slice ? bucket.own_begin : 0), piece.count));
  }
  if (std::ranges::any_of(store.buckets(), is_sharded)) param_gather_.emplace(store, fp32_copies_);
  copy_model_params_to_main_params();
}

MainParameters::~MainParameters() {
  for (Parameter* parameter : store_.parameters()) parameter->set_main({});
}

at::Tensor MainParameters::own_slice(std::size_t bucket, const at::Tensor& value) const {
  const ParamBucket& of = store_.buckets()[bucket];
  return of.is_precise ? value : of.own(value);
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
  if (!has_fp32_copies_) return store_.initialize(seed);
  std::size_t piece = 0;
  for (Parameter* parameter : store_.parameters()) {
    const bool is_owned = piece < tensors_.size() && pieces()[piece].parameter == parameter;
    const bool is_whole = is_owned && pieces()[piece].count == parameter->value().numel();
    if (!parameter->is_trained()) {
      initialize_parameter(*parameter, parameter->value(), seed);
      continue;
    }
    const at::Tensor drawn = is_whole ? tensors_[piece].view(parameter->local_shape())
                                      : at::empty(parameter->local_shape(),
                                                  parameter->value().options().dtype(at::kFloat));
    initialize_parameter(*parameter, drawn, seed);
    at::Tensor(parameter->value()).copy_(drawn);
    if (parameter->has_main()) at::Tensor(parameter->precise_value()).copy_(drawn);
    if (is_owned && !is_whole) tensors_[piece].copy_(pieces()[piece].of(drawn));
    piece += is_owned;
  }
}

void MainParameters::copy_model_params_to_main_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (fp32_copies_[b].defined()) fp32_copies_[b].copy_(own_slice(b, store_.buckets()[b].value));
  }
}

void MainParameters::copy_main_params_to_model_params() {
  wait_all_gather_params();
  for (std::size_t b = 0; b < fp32_copies_.size(); ++b) {
    if (fp32_copies_[b].defined()) own_slice(b, store_.buckets()[b].value).copy_(fp32_copies_[b]);
  }
  all_gather_params();
}

void MainParameters::all_gather_params() {
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
