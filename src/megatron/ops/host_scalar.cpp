#include "megatron/ops/host_scalar.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"

namespace megatron {

double host_scalar(const at::Tensor& scalar) {
  MEGATRON_CHECK(scalar.is_cpu() && scalar.numel() == 1, "a tensor of ", scalar.sizes(), " on ",
                 scalar.device(), " is no scalar on the CPU");
  return scalar.scalar_type() == c10::kDouble
             ? *scalar.const_data_ptr<double>()
             : static_cast<double>(*scalar.const_data_ptr<float>());
}

bool is_known_to_differ(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu() || !b.is_cpu()) return false;
  const double x = host_scalar(a), y = host_scalar(b);
  return x != y && !(std::isnan(x) && std::isnan(y));
}

HostRange host_range(const at::Tensor& numbers) {
  if (!numbers.is_cpu()) return {};
  const at::Tensor all = numbers.contiguous();
  if (all.numel() == 0) return {};
  const auto* first = all.const_data_ptr<std::int64_t>();
  const auto [least, largest] = std::minmax_element(first, first + all.numel());
  return {*least, *largest};
}

}  // namespace megatron
