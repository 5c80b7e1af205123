// A GEMM of 16-bit operands into float32 multiplies m × k rows of a by k × n columns of b with
// oneDNN's brgemm micro-kernel, which ATen exports (CPUBlas.h). `b` is packed into panels of 64
// columns with neighbouring rows interleaved, as the CPU's 16-bit dot products require; `a` is read
// in place.
#include "megatron/ops/aten_matmul.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_features.h"
#include "megatron/ops/op_scope.h"

namespace megatron {
namespace {

constexpr std::int64_t kTile = 64, kDepth = 512;

std::int64_t tiles(std::int64_t extent) { return (extent + kTile - 1) / kTile; }

/// Interleaves rows 2i and 2i + 1 of `columns` columns, column by column.
void pack_panel(const std::uint16_t* from, std::int64_t stride, std::int64_t k,
                std::int64_t columns, std::uint16_t* to) {
  for (std::int64_t row = 0; row < k; row += 2, to += 2 * kTile) {
    const std::uint16_t *first = from + row * stride, *second = first + stride;
    for (std::int64_t c = 0; c < columns; ++c) {
      to[2 * c] = first[c];
      to[2 * c + 1] = second[c];
    }
  }
}

/// Packs b into [panels, k, 64].
at::Tensor pack_panels(const at::Tensor& b) {
  const std::int64_t k = b.size(0), n = b.size(1);
  at::Tensor packed = at::empty({tiles(n), k, kTile}, b.options());
  const auto* from = static_cast<const std::uint16_t*>(b.const_data_ptr());
  auto* to = static_cast<std::uint16_t*>(packed.mutable_data_ptr());
  at::parallel_for(0, tiles(n), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel)
      pack_panel(from + panel * kTile, b.stride(0), k, std::min(kTile, n - panel * kTile),
                 to + panel * k * kTile);
  });
  return packed;
}

/// Computes c[rows, columns] (+)= a·panel over the whole depth k.
template <class T>
void multiply_tile(std::int64_t rows, std::int64_t columns, std::int64_t k, const T* a,
                   std::int64_t lda, const T* panel, float* c, std::int64_t ldc, bool accumulate) {
  for (std::int64_t d = 0; d < k; d += kDepth) {
    at::native::cpublas::brgemm(rows, columns, std::min(kDepth, k - d), lda, kTile, ldc,
                                accumulate || d > 0, a + d, panel + d * kTile, c);
  }
}

/// Computes out (+)= a·b, or out (+)= (a·b)ᵀ with `transposed`. The rows of a and b are contiguous.
template <class T>
void multiply(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate,
              bool transposed) {
  const std::int64_t m = a.size(0), k = a.size(1), n = b.size(1), ldc = out.stride(0);
  const at::Tensor packed = pack_panels(b);
  const T *from = a.const_data_ptr<T>(), *panels = packed.const_data_ptr<T>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, tiles(m), 1, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::array<float, kTile * kTile> tile;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i * kTile, rows = std::min(kTile, m - row);
      for (std::int64_t j = 0; j < tiles(n); ++j) {
        const std::int64_t column = j * kTile, columns = std::min(kTile, n - column);
        const T* panel = panels + j * k * kTile;
        if (!transposed) {
          multiply_tile(rows, columns, k, from + row * a.stride(0), a.stride(0), panel,
                        to + row * ldc + column, ldc, accumulate);
          continue;
        }
        multiply_tile(rows, columns, k, from + row * a.stride(0), a.stride(0), panel, tile.data(),
                      kTile, false);
        for (std::int64_t c = 0; c < columns; ++c) {
          float* line = to + (column + c) * ldc + row;
          for (std::int64_t r = 0; r < rows; ++r)
            line[r] = tile[r * kTile + c] + (accumulate ? line[r] : 0.0f);
        }
      }
    }
    at::native::cpublas::brgemm_release();
  });
}

bool rows_contiguous(const at::Tensor& x) { return x.stride(1) == 1 && x.stride(0) >= x.size(1); }

/// Returns whether the micro-kernel can read packed panels. oneDNN's environment variables may
/// select an older instruction set than the CPU's.
template <class T>
bool probe() {
  at::Tensor out = at::empty({2, 2}, at::kFloat),
             a = at::empty({2, 2}, c10::CppTypeToScalarType<T>::value), b = at::empty_like(a);
  for (int i = 0; i < 4; ++i) {
    a.mutable_data_ptr<T>()[i] = static_cast<float>(i + 1);
    b.mutable_data_ptr<T>()[i] = static_cast<float>(i + 5);
  }
  multiply<T>(out, a, b, /*accumulate=*/false, /*transposed=*/false);
  const float* c = out.const_data_ptr<float>();
  return c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50;
}

template <class T>
bool available(bool in_hardware) {
  static const bool result = in_hardware && probe<T>();
  return result;
}

/// Computes out (+)= a·b in float32 from 16-bit operands. Returns false, and leaves `out`
/// untouched, when no micro-kernel supports the shape, the library or the CPU.
bool brgemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  const bool is_bf16 = a.scalar_type() == c10::kBFloat16;
  if (is_bf16 ? !available<at::BFloat16>(kernels::cpu_has_avx512_bf16())
              : !available<at::Half>(kernels::cpu_has_avx512_fp16()))
    return false;
  if (out.numel() == 0 || a.size(1) == 0 || a.size(1) % 2 != 0 || out.stride(1) != 1) return false;
  const OpScope scope("megatron::brgemm", {a, b, out});
  // The transposed GEMM reads a weight given as bᵀ in place and packs the small operand instead.
  const bool transposed = !rows_contiguous(b) && rows_contiguous(b.t());
  const at::Tensor left = transposed ? b.t() : rows_contiguous(a) ? a : a.contiguous();
  const at::Tensor right = transposed           ? a.t().contiguous()
                           : rows_contiguous(b) ? b
                                                : b.contiguous();
  is_bf16 ? multiply<at::BFloat16>(out, left, right, accumulate, transposed)
          : multiply<at::Half>(out, left, right, accumulate, transposed);
  return true;
}

}  // namespace

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
