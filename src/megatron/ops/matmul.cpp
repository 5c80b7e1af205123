#include "megatron/ops/matmul.h"

#include <ATen/ops/empty.h>

#include "megatron/base/error.h"
#include "megatron/ops/aten_matmul.h"
#include "megatron/ops/cpu_gemm.h"
#include "megatron/ops/gemm_backend.h"
#include "megatron/ops/operator.h"

namespace megatron {
namespace {

using Optional = std::optional<at::Tensor>;

void out_on_cpu(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                bool accumulate) {
  at::Tensor out = result;
  uses_own_gemm(a.scalar_type()) ? cpu_gemm(out, a, b, {}, accumulate)
                                 : aten_matmul_out(out, a, b, accumulate);
}

void out_by_aten(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                 bool accumulate) {
  at::Tensor out = result;
  aten_matmul_out(out, a, b, accumulate);
}

at::Tensor matmul_by_aten(const at::Tensor& a, const at::Tensor& b, const Optional& bias,
                          c10::ScalarType type) {
  if (type == a.scalar_type()) return aten_matmul(a, b, tensor_or_none(bias));
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  aten_matmul_out(out, a, b, /*accumulate=*/false);
  if (bias) out.add_(*bias);
  return out;
}

at::Tensor matmul_on_cpu(const at::Tensor& a, const at::Tensor& b, const Optional& bias,
                         c10::ScalarType type) {
  if (!uses_own_gemm(a.scalar_type())) return matmul_by_aten(a, b, bias, type);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  cpu_gemm(out, a, b, tensor_or_none(bias), /*accumulate=*/false);
  return out;
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<matmul_on_cpu>(library, "matmul");
  register_kernel<matmul_by_aten>(library, "matmul", kAnyDevice);
  define_operator<out_on_cpu>(
      library, "matmul_out(Tensor(a!) out, Tensor a, Tensor b, bool accumulate) -> ()");
  register_kernel<out_by_aten>(library, "matmul_out", kAnyDevice);
}

}  // namespace

void check_gemm_types(const at::Tensor& a, const at::Tensor& b, c10::ScalarType out) {
  const c10::ScalarType type = a.scalar_type();
  MEGATRON_CHECK(b.scalar_type() == type &&
                     (out == type || (c10::isReducedFloatingType(type) && out == c10::kFloat)),
                 "a GEMM of ", c10::toString(type), " and ", c10::toString(b.scalar_type()),
                 " into ", c10::toString(out));
}

void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  static const Operator<out_on_cpu> op("megatron::matmul_out");
  check_gemm_types(a, b, out.scalar_type());
  op(out, a, b, accumulate);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias) {
  static const Operator<matmul_on_cpu> op("megatron::matmul");
  return op(a, b, optional_tensor(bias), type);
}

}  // namespace megatron
