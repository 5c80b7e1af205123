#include "megatron/ops/matmul.h"

#include <ATen/ops/empty.h>

#include "megatron/base/error.h"
#include "megatron/ops/aten_matmul.h"
#include "megatron/ops/cpu_gemm.h"
#include "megatron/ops/gemm_backend.h"

namespace megatron {
namespace {

bool is_half(c10::ScalarType type) { return type == c10::kBFloat16 || type == c10::kHalf; }

bool is_ours(const at::Tensor& a) {
  return a.is_cpu() && (a.scalar_type() == c10::kFloat || is_half(a.scalar_type())) &&
         gemm_backend(a.scalar_type()) == GemmBackend::own;
}

}  // namespace

void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const c10::ScalarType type = a.scalar_type();
  MEGATRON_CHECK(b.scalar_type() == type && (out.scalar_type() == type ||
                                             (is_half(type) && out.scalar_type() == c10::kFloat)),
                 "a product of ", c10::toString(type), " and ", c10::toString(b.scalar_type()),
                 " into ", c10::toString(out.scalar_type()));
  is_ours(a) ? cpu_gemm(out, a, b, {}, accumulate) : aten_matmul_out(out, a, b, accumulate);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias) {
  if (!is_ours(a) && type == a.scalar_type()) return aten_matmul(a, b, bias);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  if (is_ours(a)) {
    cpu_gemm(out, a, b, bias, /*accumulate=*/false);
    return out;
  }
  aten_matmul_out(out, a, b, /*accumulate=*/false);
  if (bias.defined()) out.add_(bias);
  return out;
}

}  // namespace megatron
