#include "megatron/optimizer/main_parameters.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "megatron/transformer/init.h"

namespace megatron {
namespace {

bool has_16_bits(const ParamBucket& bucket) { return bucket.value.element_size() == 2; }

}  // namespace

MainParameters::MainParameters(ParamStore& store) : store_(store), are_separate_(std::ranges::any_of(store.buckets(), has_16_bits)), sums_(store) {
  for (const ParamBucket& bucket : store.buckets()) {
    if (!are_separate_) break;
    const std::int64_t size = bucket.is_precise ? bucket.value.numel() : bucket.own_size;
    copies_.push_back(at::empty({size}, bucket.value.options().dtype(at::kFloat)));
    for (std::size_t i = 0; bucket.is_precise && i < bucket.parameters.size(); ++i) {
      const at::Tensor& value = bucket.parameters[i]->value();
      bucket.parameters[i]->set_main(copies_.back().narrow(0, bucket.offsets[i], value.numel()).view(value.sizes()));
    }
  }
  for (const ParameterPiece& piece : store.pieces()) {
    const ParamBucket& bucket = store.buckets()[piece.bucket];
    const at::Tensor& whole = are_separate_ ? copies_[piece.bucket] : bucket.value;
    const bool is_slice = whole.numel() < bucket.value.numel();
    tensors_.push_back(whole.narrow(0, piece.offset - (is_slice ? bucket.own_begin : 0), piece.count));
  }
  if (store.data_parallel().shard.size > 1) gather_.emplace(store, copies_);
  take_weights();
}

MainParameters::~MainParameters() {
  for (Parameter* parameter : store_.parameters()) parameter->set_main({});
}

at::Tensor MainParameters::part(std::size_t bucket, const at::Tensor& value) const {
  const ParamBucket& of = store_.buckets()[bucket];
  return of.is_precise ? value : of.own(value);
}

std::int64_t MainParameters::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& copy : copies_) bytes += static_cast<std::int64_t>(copy.nbytes());
  return bytes;
}

void MainParameters::initialize(std::uint64_t seed) {
  finish_sharing();
  if (!are_separate_) return store_.initialize(seed);
  std::size_t piece = 0;
  for (Parameter* parameter : store_.parameters()) {
    const bool is_owned = piece < tensors_.size() && pieces()[piece].parameter == parameter;
    const bool is_whole = is_owned && pieces()[piece].count == parameter->value().numel();
    const at::Tensor drawn = is_whole ? tensors_[piece].view(parameter->local_shape())
                                      : at::empty(parameter->local_shape(), parameter->value().options().dtype(at::kFloat));
    initialize_parameter(*parameter, drawn, seed);
    at::Tensor(parameter->value()).copy_(drawn);
    if (parameter->spec().tags.precise) at::Tensor(parameter->precise_value()).copy_(drawn);
    if (is_owned && !is_whole) tensors_[piece].copy_(pieces()[piece].of(drawn));
    piece += is_owned;
  }
}

void MainParameters::take_weights() {
  finish_sharing();
  for (std::size_t b = 0; b < copies_.size(); ++b) copies_[b].copy_(part(b, store_.buckets()[b].value));
}

void MainParameters::write_weights() {
  finish_sharing();
  for (std::size_t b = 0; b < copies_.size(); ++b) part(b, store_.buckets()[b].value).copy_(copies_[b]);
  share_weights();
}

void MainParameters::share_weights() {
  if (gather_) gather_->start();
}

void MainParameters::finish_sharing() {
  if (gather_) gather_->finish();
}

double MainParameters::norm() const {
  double sum = 0;
  for (const double norm : parameter_norms(sums_, store_, tensors_)) sum += norm * norm;
  return std::sqrt(sum);
}

}  // namespace megatron
