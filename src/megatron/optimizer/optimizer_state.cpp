#include "megatron/optimizer/optimizer_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "kernels/block_sums.h"
#include "kernels/cpu/conversions.h"

namespace megatron {

OptimizerState::OptimizerState(std::string name, const ParamStore& store, at::ScalarType dtype)
    : name_(std::move(name)), pieces_(store.pieces()), dtype_(dtype) {
  std::vector<at::Tensor> scales;
  for (const ParamBucket& bucket : store.buckets()) {
    const auto options = bucket.value.options();
    const std::int64_t size = bucket.is_trained ? bucket.own_size : 0;
    buckets_.push_back(at::zeros({size}, options.dtype(dtype)));
    if (dtype == at::kHalf)
      scales.push_back(at::ones({size / kernels::kStateBlock}, options.dtype(at::kFloat)));
  }
  for (const ParameterPiece& piece : pieces_) {
    const std::int64_t begin = piece.offset - store.buckets()[piece.bucket].own_begin;
    tensors_.push_back(buckets_[piece.bucket].narrow(0, begin, piece.count));
    if (dtype != at::kHalf) continue;
    const std::int64_t blocks = (piece.count + kernels::kStateBlock - 1) / kernels::kStateBlock;
    scales_.push_back(scales[piece.bucket].narrow(0, begin / kernels::kStateBlock, blocks));
  }
  buckets_.insert(buckets_.end(), scales.begin(), scales.end());
}

std::int64_t OptimizerState::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& bucket : buckets_) bytes += static_cast<std::int64_t>(bucket.nbytes());
  return bytes;
}

void OptimizerState::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (scales_.empty()) {
      visitor(pieces_[i], name_, tensors_[i]);
    } else {
      visit_scaled(i, visitor);
    }
  }
}

void OptimizerState::visit_scaled(std::size_t index, const Visitor& visitor) {
  const at::Tensor packed = tensors_[index].cpu(), scales = scales_[index].cpu();
  const auto bits = static_cast<std::uint16_t*>(packed.mutable_data_ptr());
  at::Tensor wide = at::empty(packed.sizes(), packed.options().dtype(at::kFloat));
  kernels::conversions().decode_blocks(bits, scales.const_data_ptr<float>(),
                                       wide.mutable_data_ptr<float>(), wide.numel());
  visitor(pieces_[index], name_, wide);
  kernels::conversions().encode_blocks(wide.const_data_ptr<float>(), bits,
                                       scales.mutable_data_ptr<float>(), wide.numel());
  tensors_[index].copy_(packed);
  scales_[index].copy_(scales);
}

}  // namespace megatron
