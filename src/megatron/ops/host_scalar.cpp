#include "megatron/ops/host_scalar.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

double host_scalar(const at::Tensor& scalar) {
  MEGATRON_CHECK(scalar.is_cpu() && scalar.numel() == 1, "a scalar on the CPU");
  return scalar.scalar_type() == c10::kDouble
             ? *scalar.const_data_ptr<double>()
             : static_cast<double>(*scalar.const_data_ptr<float>());
}

HostRange host_range(const at::Tensor& numbers) {
  MEGATRON_CHECK(numbers.is_cpu(), "numbers on the CPU");
  const at::Tensor all = numbers.contiguous();
  if (all.numel() == 0) return {};
  const auto* first = all.const_data_ptr<std::int64_t>();
  const auto [least, largest] = std::minmax_element(first, first + all.numel());
  return {*least, *largest};
}

}  // namespace megatron
