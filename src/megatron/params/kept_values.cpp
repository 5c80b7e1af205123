// The values that a rank keeps of its parameters between steps (ParamStore).
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "megatron/params/init.h"
#include "megatron/params/param_store.h"

namespace megatron {

void ParamStore::initialize(std::uint64_t seed) {
  for (const Parameter* parameter : parameters_) {
    const ParamBucket& bucket = buckets_[contribution_counts_[parameter->index_].bucket];
    if (!bucket.has_unit_values()) {
      initialize_parameter(*parameter, parameter->value(), seed);
      continue;
    }
    const at::Tensor drawn = at::empty(
        parameter->local_shape(), at::TensorOptions().device(options_.device).dtype(bucket.dtype));
    initialize_parameter(*parameter, drawn, seed);
    set_value(*parameter, drawn);
  }
}

std::vector<ParameterPiece> ParamStore::kept_pieces() const {
  std::vector<ParameterPiece> kept;
  for (Parameter* parameter : parameters_) {
    const std::size_t index = contribution_counts_[parameter->index_].bucket;
    if (!buckets_[index].has_unit_values()) {
      kept.push_back(whole_piece(*parameter, index));
    } else if (const ParameterPiece* piece = find_piece(*parameter)) {
      kept.push_back(*piece);
    }
  }
  return kept;
}

const ParameterPiece* ParamStore::find_piece(const Parameter& parameter) const {
  const auto& pieces = parameter.is_trained() ? pieces_ : untrained_pieces_;
  const auto found =
      std::ranges::lower_bound(pieces, parameter.index_, {},
                               [](const ParameterPiece& piece) { return piece.parameter->index_; });
  return found != pieces.end() && found->parameter == &parameter ? &*found : nullptr;
}

void ParamStore::open_values(std::size_t index) {
  ParamBucket& bucket = buckets_.at(index);
  if (!bucket.offloads_values || bucket.slice_value.defined()) return;
  unit_values_->discard();
  bucket.slice_value = offloaded_values_->take(index);
  bucket.own_value = bucket.own_of_slice(bucket.slice_value);
}

void ParamStore::close_values(std::size_t index) {
  ParamBucket& bucket = buckets_.at(index);
  if (!bucket.offloads_values || !bucket.slice_value.defined()) return;
  bucket.own_value = at::Tensor();
  offloaded_values_->put(index, std::exchange(bucket.slice_value, at::Tensor()));
}

at::Tensor ParamStore::read_own_values(std::size_t index) const {
  const ParamBucket& bucket = buckets_.at(index);
  if (!bucket.offloads_values || bucket.own_value.defined()) return bucket.own_value;
  return bucket.own_of_slice(offloaded_values_->peek(index));
}

at::Tensor ParamStore::read_kept(const ParameterPiece& piece) const {
  const ParamBucket& bucket = buckets_[piece.bucket];
  if (!bucket.has_unit_values()) return piece.parameter->value().view({-1});
  return piece.of_own(read_own_values(piece.bucket), bucket);
}

void ParamStore::change_kept(const ParameterPiece& piece,
                             const std::function<void(const at::Tensor& flat)>& change) {
  open_values(piece.bucket);
  change(read_kept(piece));
  close_values(piece.bucket);
}

void ParamStore::set_value(const Parameter& parameter, const at::Tensor& whole) {
  const ParamBucket& bucket = buckets_[contribution_counts_[parameter.index_].bucket];
  if (!bucket.has_unit_values()) {
    at::Tensor(parameter.value()).copy_(whole);
    return;
  }
  if (const ParameterPiece* piece = find_piece(parameter))
    change_kept(*piece, [&](const at::Tensor& flat) { flat.copy_(piece->of(whole.contiguous())); });
  end_changes();
}

}  // namespace megatron
