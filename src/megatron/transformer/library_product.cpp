#include "megatron/transformer/library_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "kernels/cpu/cpu_features.h"
#include "megatron/transformer/block_product.h"

namespace megatron {

bool library_multiplies(c10::ScalarType type) {
  if (type == c10::kFloat) return true;
  if (type == c10::kBFloat16) return kernels::cpu_has_bf16_products();
  return type == c10::kHalf && kernels::cpu_has_f16_products();
}

void library_product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (out.scalar_type() == a.scalar_type()) {
    at::addmm_out(out, out, a, b, /*beta=*/accumulate ? 1 : 0);
  } else if (!a.is_cpu()) {
    at::addmm_out(out, out, a, b, c10::kFloat, /*beta=*/accumulate ? 1 : 0);
  } else if (!block_product(out, a, b, accumulate)) {
    const at::Tensor wide_a = a.to(c10::kFloat), wide_b = b.to(c10::kFloat);
    at::addmm_out(out, out, wide_a, wide_b, /*beta=*/accumulate ? 1 : 0);
  }
}

at::Tensor library_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

}  // namespace megatron
