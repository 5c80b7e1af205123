#include "megatron/ops/matmul.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "kernels/cpu/cpu_features.h"
#include "megatron/base/error.h"
#include "megatron/ops/aten_matmul.h"
#include "megatron/ops/cpu_gemm.h"
#include "megatron/ops/operator.h"

namespace megatron {

bool uses_own_gemm(c10::ScalarType type) {
  if (type == c10::kFloat) return kernels::cpu_has_avx2();
  if (type == c10::kHalf) return !kernels::cpu_has_avx512_fp16();
  return type == c10::kBFloat16;
}

namespace {

// ---- the operators ----

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

at::Tensor grouped_by_aten(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows,
                           const Optional& bias, c10::ScalarType type) {
  at::Tensor out = at::empty({a.size(0), b.size(2)}, a.options().dtype(type));
  for_each_group(rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    at::Tensor part = out.narrow(0, first, count);
    aten_matmul_out(part, a.narrow(0, first, count), b[e], /*accumulate=*/false);
    if (bias) part.add_((*bias)[e]);
  });
  return out;
}

at::Tensor grouped_on_cpu(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows,
                          const Optional& bias, c10::ScalarType type) {
  if (!uses_own_gemm(a.scalar_type())) return grouped_by_aten(a, b, rows, bias, type);
  at::Tensor out = at::empty({a.size(0), b.size(2)}, a.options().dtype(type));
  cpu_grouped_gemm(out, a, b, rows, tensor_or_none(bias));
  return out;
}

void over_rows_by_aten(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                       at::IntArrayRef rows, bool accumulate) {
  for_each_group(rows, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
    at::Tensor part = out[e];
    if (count == 0) {
      if (!accumulate) part.zero_();
      return;
    }
    aten_matmul_out(part, a.narrow(0, first, count).t(), b.narrow(0, first, count), accumulate);
  });
}

void over_rows_on_cpu(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                      at::IntArrayRef rows, bool accumulate) {
  if (!uses_own_gemm(a.scalar_type())) return over_rows_by_aten(out, a, b, rows, accumulate);
  at::Tensor result = out;
  cpu_grouped_gemm_over_rows(result, a, b, rows, accumulate);
}

void packed_on_cpu(const at::Tensor& out, const at::Tensor& a, const at::Tensor& weight,
                   std::int64_t packed_rows, const Optional& bias) {
  at::Tensor result = out;
  cpu_gemm(result, a, weight.t(), tensor_or_none(bias), /*accumulate=*/false, packed_rows);
}

void grouped_packed_on_cpu(const at::Tensor& out, const at::Tensor& a, const at::Tensor& weight,
                           std::int64_t packed_rows, at::IntArrayRef rows, const Optional& bias) {
  at::Tensor result = out;
  cpu_grouped_gemm(result, a, weight.transpose(1, 2), rows, tensor_or_none(bias), packed_rows);
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<packed_on_cpu>(
      library,
      "packed_matmul_out(Tensor(a!) out, Tensor a, Tensor weight, int packed_rows, Tensor? bias) "
      "-> ()");
  define_operator<grouped_packed_on_cpu>(
      library,
      "grouped_packed_matmul_out(Tensor(a!) out, Tensor a, Tensor weight, int packed_rows, "
      "int[] rows, Tensor? bias) -> ()");
  define_operator<matmul_on_cpu>(library, "matmul");
  register_kernel<matmul_by_aten>(library, "matmul", kAnyDevice);
  define_operator<out_on_cpu>(
      library, "matmul_out(Tensor(a!) out, Tensor a, Tensor b, bool accumulate) -> ()");
  register_kernel<out_by_aten>(library, "matmul_out", kAnyDevice);
  define_operator<grouped_on_cpu>(library, "grouped_matmul");
  register_kernel<grouped_by_aten>(library, "grouped_matmul", kAnyDevice);
  define_operator<over_rows_on_cpu>(
      library,
      "grouped_matmul_over_rows_out(Tensor(a!) out, Tensor a, Tensor b, int[] rows, "
      "bool accumulate) -> ()");
  register_kernel<over_rows_by_aten>(library, "grouped_matmul_over_rows_out", kAnyDevice);
}

/// Throws InternalError unless `a`, `b` and `bias`, if defined, have one dtype and a GEMM of them
/// may have results of dtype `out`: their own, or float32 for 16-bit operands.
void check_types(const at::Tensor& a, const at::Tensor& b, c10::ScalarType out,
                 const at::Tensor& bias = {}) {
  const c10::ScalarType type = a.scalar_type();
  MEGATRON_CHECK(b.scalar_type() == type &&
                     (out == type || (c10::isReducedFloatingType(type) && out == c10::kFloat)),
                 "a GEMM of ", c10::toString(type), " and ", c10::toString(b.scalar_type()),
                 " into ", c10::toString(out));
  MEGATRON_CHECK(!bias.defined() || bias.scalar_type() == type, "a GEMM of ", c10::toString(type),
                 " with a bias of ", c10::toString(bias.scalar_type()));
}

void check(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows, std::int64_t groups,
           c10::ScalarType type, const at::Tensor& bias = {}) {
  MEGATRON_CHECK(static_cast<std::int64_t>(rows.size()) == groups, "a grouped GEMM of ", groups,
                 " groups with ", rows.size(), " row counts");
  MEGATRON_CHECK(
      std::all_of(rows.begin(), rows.end(), [](std::int64_t count) { return count >= 0; }) &&
          std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == a.size(0),
      "the rows of a grouped GEMM's groups, ", rows, ", do not sum to ", a.size(0));
  check_types(a, b, type, bias);
}

}  // namespace

void matmul_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  static const Operator<out_on_cpu> op("megatron::matmul_out");
  check_types(a, b, out.scalar_type());
  op(out, a, b, accumulate);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, c10::ScalarType type,
                  const at::Tensor& bias) {
  static const Operator<matmul_on_cpu> op("megatron::matmul");
  check_types(a, b, type, bias);
  return op(a, b, optional_tensor(bias), type);
}

at::Tensor grouped_matmul(const at::Tensor& a, const at::Tensor& b, at::IntArrayRef rows,
                          c10::ScalarType type, const at::Tensor& bias) {
  static const Operator<grouped_on_cpu> op("megatron::grouped_matmul");
  MEGATRON_CHECK(a.dim() == 2 && b.dim() == 3 && a.size(1) == b.size(1) && b.size(1) > 0,
                 "a grouped GEMM of shapes ", a.sizes(), " and ", b.sizes());
  check(a, b, rows, b.size(0), type, bias);
  return op(a, b, rows, optional_tensor(bias), type);
}

bool can_pack(const at::Tensor& weight) {
  return weight.is_cpu() && weight.numel() > 0 && uses_own_gemm(weight.scalar_type());
}

GemmWeight pack_gemm_weight(const at::Tensor& weight) {
  return {weight, can_pack(weight) ? cpu_pack_weight(weight) : 0};
}

at::Tensor matmul(const at::Tensor& a, const GemmWeight& weight, c10::ScalarType type,
                  const at::Tensor& bias) {
  if (weight.packed_rows == 0) return matmul(a, weight.value.t(), type, bias);
  static const Operator<packed_on_cpu> op("megatron::packed_matmul_out");
  check_types(a, weight.value, type, bias);
  at::Tensor out = at::empty({a.size(0), weight.value.size(0)}, a.options().dtype(type));
  op(out, a, weight.value, weight.packed_rows, optional_tensor(bias));
  return out;
}

void matmul_out(at::Tensor& out, const at::Tensor& a, const GemmWeight& weight) {
  if (weight.packed_rows == 0) return matmul_out(out, a, weight.value.t(), /*accumulate=*/false);
  static const Operator<packed_on_cpu> op("megatron::packed_matmul_out");
  check_types(a, weight.value, out.scalar_type());
  op(out, a, weight.value, weight.packed_rows, std::nullopt);
}

at::Tensor grouped_matmul(const at::Tensor& a, const GemmWeight& weight, at::IntArrayRef rows,
                          c10::ScalarType type, const at::Tensor& bias) {
  const at::Tensor& w = weight.value;
  if (weight.packed_rows == 0) return grouped_matmul(a, w.transpose(1, 2), rows, type, bias);
  static const Operator<grouped_packed_on_cpu> op("megatron::grouped_packed_matmul_out");
  MEGATRON_CHECK(a.dim() == 2 && w.dim() == 3 && a.size(1) == w.size(2),
                 "a grouped GEMM of shapes ", a.sizes(), " and ", w.sizes());
  check(a, w, rows, w.size(0), type, bias);
  at::Tensor out = at::empty({a.size(0), w.size(1)}, a.options().dtype(type));
  op(out, a, w, weight.packed_rows, rows, optional_tensor(bias));
  return out;
}

void grouped_matmul_over_rows_out(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                  at::IntArrayRef rows, bool accumulate) {
  static const Operator<over_rows_on_cpu> op("megatron::grouped_matmul_over_rows_out");
  MEGATRON_CHECK(a.dim() == 2 && b.dim() == 2 && out.dim() == 3 && out.is_contiguous() &&
                     b.size(0) == a.size(0) && out.size(1) == a.size(1) && out.size(2) == b.size(1),
                 "a grouped GEMM over rows of shapes ", a.sizes(), " and ", b.sizes(), " into ",
                 out.sizes());
  check(a, b, rows, out.size(0), out.scalar_type());
  op(out, a, b, rows, accumulate);
}

}  // namespace megatron
