#include "megatron/optimizer/optimizer_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "kernels/cpu/conversions.h"
#include "kernels/optimizer_operations.h"
#include "megatron/optimizer/flat_tensors.h"

namespace megatron {

OptimizerState::OptimizerState(std::string name, const std::vector<Parameter*>& parameters, at::ScalarType dtype)
    : name_(std::move(name)), parameters_(parameters), dtype_(dtype), tensors_(flat_tensors(parameters, dtype)) {
  if (dtype != at::kHalf) return;
  for (const at::Tensor& tensor : tensors_) {
    const std::int64_t blocks = (tensor.numel() + kernels::kStateBlock - 1) / kernels::kStateBlock;
    scales_.push_back(at::ones({blocks}, tensor.options().dtype(at::kFloat)));
  }
}

void OptimizerState::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (scales_.empty()) {
      visitor(*parameters_[i], name_, tensors_[i]);
    } else {
      visit_scaled(i, visitor);
    }
  }
}

void OptimizerState::visit_scaled(std::size_t index, const Visitor& visitor) {
  const at::Tensor packed = tensors_[index].cpu(), scales = scales_[index].cpu();
  const auto bits = static_cast<std::uint16_t*>(packed.mutable_data_ptr());
  at::Tensor wide = at::empty(packed.sizes(), packed.options().dtype(at::kFloat));
  kernels::conversions().decode_blocks(bits, scales.const_data_ptr<float>(), wide.mutable_data_ptr<float>(), wide.numel());
  visitor(*parameters_[index], name_, wide);
  kernels::conversions().encode_blocks(wide.const_data_ptr<float>(), bits, scales.mutable_data_ptr<float>(), wide.numel());
  tensors_[index].copy_(packed);
  scales_[index].copy_(scales);
}

}  // namespace megatron
