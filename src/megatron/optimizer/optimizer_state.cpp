#include "megatron/optimizer/optimizer_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "kernels/block_sums.h"
#include "kernels/cpu/conversions.h"

namespace megatron {

OptimizerState::OptimizerState(std::string name, const ParamStore& store, at::ScalarType dtype,
                               const std::function<bool(const Parameter&)>& selects)
    : name_(std::move(name)), pieces_(store.pieces()), dtype_(dtype) {
  constexpr std::int64_t kBlock = kernels::kStateBlock;
  const auto blocks_of = [](const ParameterPiece& piece) {
    return (piece.count + kBlock - 1) / kBlock;
  };
  std::vector<std::int64_t> num_blocks(store.buckets().size(), 0);
  for (const ParameterPiece& piece : pieces_) {
    if (selects(*piece.parameter)) num_blocks[piece.bucket] += blocks_of(piece);
  }
  const auto options = at::TensorOptions().device(store.device());
  std::vector<at::Tensor> scales;
  for (const std::int64_t blocks : num_blocks) {
    storage_.push_back(at::zeros({blocks * kBlock}, options.dtype(dtype)));
    if (dtype == at::kHalf) scales.push_back(at::ones({blocks}, options.dtype(at::kFloat)));
  }
  std::vector<std::int64_t> next_block(num_blocks.size(), 0);
  for (const ParameterPiece& piece : pieces_) {
    const bool is_selected = selects(*piece.parameter);
    const std::int64_t begin = next_block[piece.bucket],
                       blocks = is_selected ? blocks_of(piece) : 0;
    next_block[piece.bucket] += blocks;
    tensors_.push_back(is_selected ? storage_[piece.bucket].narrow(0, begin * kBlock, piece.count)
                                   : at::Tensor());
    if (dtype == at::kHalf)
      scales_.push_back(is_selected ? scales[piece.bucket].narrow(0, begin, blocks) : at::Tensor());
  }
  storage_.insert(storage_.end(), scales.begin(), scales.end());
}

std::int64_t OptimizerState::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : storage_) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

void OptimizerState::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].defined()) continue;
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
