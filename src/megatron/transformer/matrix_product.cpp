// How 16-bit products are made on the processor, as measured (512³, one core of an AMD EPYC with AVX512-BF16, no AMX): into bf16, oneDNN behind
// at::mm, 220 GFLOP/s; into fp32, oneDNN's micro-kernel over packed panels, 230; MKL's cblas_gemm_bf16bf16f32 runs at fp32's speed (half of
// that or less), and fp16 without AVX512-FP16 at a fifth of it. So: at::mm and the micro-kernel where the processor multiplies the type
// itself, fp32 products of widened blocks elsewhere.
#include "megatron/transformer/matrix_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "kernels/cpu/cpu_features.h"
#include "megatron/base/error.h"
#include "megatron/transformer/block_product.h"

namespace megatron {
namespace {

constexpr std::int64_t kWideElements = std::int64_t{1} << 23;  // of one widened block: 32 MiB
constexpr std::int64_t kFewRows = 8;                           // below, widening a weight costs more than the product

bool is_half(c10::ScalarType type) { return type == c10::kBFloat16 || type == c10::kHalf; }

bool multiplied_natively(const at::Tensor& a) {
  if (!a.is_cpu() || !is_half(a.scalar_type())) return true;
  return a.scalar_type() == c10::kBFloat16 ? kernels::cpu_has_bf16_products() : kernels::cpu_has_f16_products();
}

/// Writes fp32 products of widened blocks to out (rounding once when it is narrower), or adds them to it.
void widened_product(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate, const at::Tensor& bias = {}) {
  const std::int64_t m = a.size(0), k = std::max<std::int64_t>(a.size(1), 1), n = b.size(1);
  const std::int64_t step = std::max<std::int64_t>(64, kWideElements / k);
  for (std::int64_t column = 0; column < n; column += step) {
    const std::int64_t columns = std::min(step, n - column);
    const at::Tensor wide_b = b.narrow(1, column, columns).to(c10::kFloat);
    const at::Tensor wide_bias = bias.defined() ? bias.narrow(0, column, columns).to(c10::kFloat) : at::Tensor();
    for (std::int64_t row = 0; row < m; row += step) {
      const std::int64_t rows = std::min(step, m - row);
      const at::Tensor wide_a = a.narrow(0, row, rows).to(c10::kFloat);
      at::Tensor part = out.narrow(0, row, rows).narrow(1, column, columns);
      if (part.scalar_type() == c10::kFloat && accumulate) {
        at::addmm_out(part, part, wide_a, wide_b);
        continue;
      }
      const at::Tensor product = wide_bias.defined() ? at::addmm(wide_bias, wide_a, wide_b) : at::mm(wide_a, wide_b);
      accumulate ? part.add_(product) : part.copy_(product);
    }
  }
}

}  // namespace

void matrix_product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const c10::ScalarType type = a.scalar_type();
  MEGATRON_CHECK(b.scalar_type() == type && (out.scalar_type() == type || (is_half(type) && out.scalar_type() == c10::kFloat)), "a product of ",
                 c10::toString(type), " and ", c10::toString(b.scalar_type()), " into ", c10::toString(out.scalar_type()));
  if (out.scalar_type() == type) {
    if (!multiplied_natively(a)) return widened_product(out, a, b, accumulate);
    at::addmm_out(out, out, a, b, /*beta=*/accumulate ? 1 : 0);
    return;
  }
  if (a.is_cuda()) {
    at::addmm_out(out, out, a, b, c10::kFloat, /*beta=*/accumulate ? 1 : 0);
    return;
  }
  if (!a.is_cpu() || !multiplied_natively(a) || !block_product(out, a, b, accumulate)) widened_product(out, a, b, accumulate);
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type, const at::Tensor& bias) {
  if (type == a.scalar_type() && (multiplied_natively(a) || a.size(0) < kFewRows)) return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  if (type == a.scalar_type()) {
    widened_product(out, a, b, /*accumulate=*/false, bias);
    return out;
  }
  matrix_product_into(out, a, b, /*accumulate=*/false);
  if (bias.defined()) out.add_(bias);
  return out;
}

}  // namespace megatron
