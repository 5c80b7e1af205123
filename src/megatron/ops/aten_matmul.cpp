#include "megatron/ops/aten_matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "kernels/cpu/cpu_features.h"
#include "megatron/ops/brgemm.h"

namespace megatron {

bool aten_gemm_is_candidate(c10::ScalarType type) {
  if (type == c10::kFloat) return true;
  if (type == c10::kBFloat16) return kernels::cpu_has_avx512_bf16();
  return type == c10::kHalf && kernels::cpu_has_avx512_fp16();
}

void aten_matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (out.is_meta()) return;  // ATen has no GEMM into another dtype there
  if (out.scalar_type() == a.scalar_type()) {
    at::addmm_out(out, out, a, b, /*beta=*/accumulate ? 1 : 0);
  } else if (!a.is_cpu()) {
    at::addmm_out(out, out, a, b, c10::kFloat, /*beta=*/accumulate ? 1 : 0);
  } else if (!brgemm(out, a, b, accumulate)) {
    const at::Tensor wide_a = a.to(c10::kFloat), wide_b = b.to(c10::kFloat);
    at::addmm_out(out, out, wide_a, wide_b, /*beta=*/accumulate ? 1 : 0);
  }
}

at::Tensor aten_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

}  // namespace megatron
