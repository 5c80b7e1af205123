#include "megatron/ops/cpu_gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/parallel_kernel.h"
#include "megatron/ops/thread_workspace.h"

namespace megatron {
namespace {

/// Fewer multiply-adds finish before another thread wakes up.
constexpr std::int64_t kMinFmasPerThread = std::int64_t{1} << 18;

/// Returns x when one of its strides is usable as 1, else a contiguous copy. The stride of a
/// dimension of size 1 is arbitrary.
at::Tensor readable(const at::Tensor& x) {
  return x.stride(0) == 1 || x.stride(1) == 1 || x.size(0) == 1 || x.size(1) == 1 ? x
                                                                                  : x.contiguous();
}

struct Strides {
  std::int64_t row, column;
};

Strides strides_of(const at::Tensor& x) {
  if (x.size(1) == 1) return {std::max<std::int64_t>(x.stride(0), 1), 1};
  if (x.size(0) == 1 && x.stride(1) != 1) return {1, x.stride(1)};
  return {x.stride(0), x.stride(1)};
}

std::int64_t threads_for(const kernels::GemmArguments& g) {
  if (at::in_parallel_region()) return 1;
  return std::clamp<std::int64_t>(g.m * g.n * g.k / kMinFmasPerThread, 1, at::get_num_threads());
}

void run(const kernels::GemmArguments& arguments) {
  const std::int64_t threads = threads_for(arguments);
  const kernels::GemmPlan plan = kernels::plan_gemm(arguments, threads);
  dynamic_parallel_for(plan.units(), threads, [&](std::int64_t unit) {
    kernels::run_gemm(arguments, plan, unit, unit + 1, thread_workspace(plan.workspace_bytes));
  });
}

}  // namespace

void cpu_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate) {
  MEGATRON_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1),
                 "the shapes of a GEMM do not match");
  MEGATRON_CHECK(out.stride(1) == 1 || out.size(1) == 1,
                 "the rows of a GEMM's output are not contiguous");
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!accumulate) out.zero_();
    if (bias.defined()) out.add_(bias);
    return;
  }
  const at::Tensor left = readable(a), right = readable(b),
                   added = bias.defined() ? bias.contiguous() : bias;
  const Strides a_strides = strides_of(left), b_strides = strides_of(right);
  run({.a = left.const_data_ptr(),
       .b = right.const_data_ptr(),
       .type = kernel_type(a.scalar_type()),
       .a_row_stride = a_strides.row,
       .a_depth_stride = a_strides.column,
       .b_depth_stride = b_strides.row,
       .b_column_stride = b_strides.column,
       .out = out.mutable_data_ptr(),
       .out_type = kernel_type(out.scalar_type()),
       .out_stride = out.size(0) == 1 ? out.size(1) : out.stride(0),
       .bias = added.defined() ? added.const_data_ptr() : nullptr,
       .m = a.size(0),
       .n = b.size(1),
       .k = a.size(1),
       .accumulate = accumulate});
}

}  // namespace megatron
