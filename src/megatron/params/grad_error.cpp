#include "megatron/params/grad_error.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Elements that are converted at a time, which bounds the temporaries.
constexpr std::int64_t kPart = std::int64_t{1} << 18;
constexpr std::int64_t kQuietNan = 0x7FC00000;

/// Rounds bit patterns to nearest even after dropping eight bits. The magnitude of a float grows
/// with its pattern, whatever its sign.
at::Tensor drop_eight_bits(const at::Tensor& bits) {
  return (bits + 0x7F + (bits.__rshift__(8)).__and__(1)).__rshift__(8);
}

void load(const at::Tensor& grad, const at::Tensor& error, at::Tensor sum) {
  at::Tensor bits = sum.view(at::kInt);
  bits.copy_(grad.view(at::kShort));
  bits.__ilshift__(16).add_(error.to(at::kInt).__ilshift__(8));
}

void store(const at::Tensor& sum, at::Tensor grad, at::Tensor error) {
  // A NaN keeps its kind whatever its lower bits are.
  const at::Tensor bits = sum.view(at::kInt).masked_fill(at::isnan(sum), kQuietNan);
  const at::Tensor leading = drop_eight_bits(bits), rounded = drop_eight_bits(leading);
  grad.view(at::kShort).copy_(rounded);
  error.copy_((leading - rounded.__lshift__(8)).clamp_(-128, 127));
}

}  // namespace

void add_with_error_feedback(at::Tensor& grad, at::Tensor& error, bool fresh,
                             const std::function<void(at::Tensor& grad, bool fresh)>& write) {
  MEGATRON_CHECK(
      grad.scalar_type() == at::kBFloat16 && grad.is_contiguous() && error.numel() == grad.numel(),
      "error feedback of ", error.numel(), " elements for a gradient of ", grad.sizes(), " ",
      grad.scalar_type());
  at::Tensor sum = at::empty(grad.sizes(), grad.options().dtype(at::kFloat));
  const at::Tensor flat_sum = sum.view({-1}), flat_grad = grad.view({-1}),
                   flat_error = error.view({-1});
  const auto for_each_part = [&](const auto& convert) {
    for (std::int64_t begin = 0; begin < grad.numel(); begin += kPart)
      convert(begin, std::min(kPart, grad.numel() - begin));
  };
  if (!fresh)
    for_each_part([&](std::int64_t begin, std::int64_t count) {
      load(flat_grad.narrow(0, begin, count), flat_error.narrow(0, begin, count),
           flat_sum.narrow(0, begin, count));
    });
  write(sum, fresh);
  for_each_part([&](std::int64_t begin, std::int64_t count) {
    store(flat_sum.narrow(0, begin, count), flat_grad.narrow(0, begin, count),
          flat_error.narrow(0, begin, count));
  });
}

}  // namespace megatron
