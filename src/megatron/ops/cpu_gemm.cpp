#include "megatron/ops/cpu_gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/matmul.h"
#include "megatron/ops/parallel_kernel.h"

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
  // Rows that an expansion repeats have a stride of 0.
  if (x.size(1) == 1) return {x.size(0) == 1 ? 1 : x.stride(0), 1};
  if (x.size(0) == 1 && x.stride(1) != 1) return {1, x.stride(1)};
  return {x.stride(0), x.stride(1)};
}

/// Describes out (+)= a·b + bias to the kernels. `a` and `b` are readable(), the others contiguous.
kernels::GemmArguments gemm_of(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                               const at::Tensor& bias, bool accumulate,
                               std::int64_t packed_columns) {
  const Strides a_strides = strides_of(a), b_strides = strides_of(b);
  return {.a = a.const_data_ptr(),
          .b = b.const_data_ptr(),
          .type = kernel_type(a.scalar_type()),
          .a_row_stride = a_strides.row,
          .a_depth_stride = a_strides.column,
          .b_depth_stride = b_strides.row,
          .b_column_stride = b_strides.column,
          .out = out.mutable_data_ptr(),
          .out_type = kernel_type(out.scalar_type()),
          .out_stride = out.size(0) == 1 ? out.size(1) : out.stride(0),
          .bias = data_or_null(bias),
          .m = a.size(0),
          .n = b.size(1),
          .k = a.size(1),
          .accumulate = accumulate,
          .b_packed_columns = packed_columns};
}

std::int64_t fmas_of(const kernels::GemmArguments& g) { return g.m * g.n * g.k; }

std::int64_t threads_for(std::int64_t fmas) {
  if (at::in_parallel_region()) return 1;
  return std::clamp<std::int64_t>(fmas / kMinFmasPerThread, 1, at::get_num_threads());
}

void run(const kernels::GemmArguments& arguments) {
  const std::int64_t threads = threads_for(fmas_of(arguments));
  const kernels::GemmPlan plan = kernels::plan_gemm(arguments, threads);
  dynamic_parallel_for(plan.units(), threads, [&](std::int64_t unit) {
    kernels::run_gemm(arguments, plan, unit, unit + 1, thread_workspace(plan.workspace_bytes));
  });
}

/// GEMMs whose units share one queue.
class GemmGroup {
 public:
  /// `gemms` must not be empty GEMMs.
  explicit GemmGroup(std::vector<kernels::GemmArguments> gemms) : gemms_(std::move(gemms)) {
    std::int64_t fmas = 0;
    for (const kernels::GemmArguments& gemm : gemms_) fmas += fmas_of(gemm);
    threads_ = threads_for(fmas);
    // Many GEMMs keep all threads busy without being cut for them.
    const auto count = static_cast<std::int64_t>(gemms_.size());
    const std::int64_t cut_for = count < kGemmsPerThread * threads_ ? threads_ : 1;
    for (const kernels::GemmArguments& gemm : gemms_) {
      plans_.push_back(kernels::plan_gemm(gemm, cut_for));
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + plans_.back().units());
    }
  }

  void run() const {
    if (gemms_.empty()) return;
    dynamic_parallel_for(ends_.back(), threads_, [&](std::int64_t unit) {
      const std::size_t index = gemm_of(unit);
      const kernels::GemmPlan& plan = plans_[index];
      kernels::UpcomingLines upcoming = lines_of_unit(unit + threads_);
      const std::int64_t own = unit - (ends_[index] - plan.units());
      kernels::run_gemm(gemms_[index], plan, own, own + 1, thread_workspace(plan.workspace_bytes),
                        &upcoming);
    });
  }

 private:
  std::size_t gemm_of(std::int64_t unit) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, unit) - ends_.begin());
  }

  /// Returns what a unit packs, which this thread will probably compute next.
  kernels::UpcomingLines lines_of_unit(std::int64_t unit) const {
    if (unit >= ends_.back()) return {};
    const std::size_t index = gemm_of(unit);
    return kernels::lines_to_pack(gemms_[index], plans_[index],
                                  unit - (ends_[index] - plans_[index].units()));
  }

  static constexpr std::int64_t kGemmsPerThread = 8;
  std::vector<kernels::GemmArguments> gemms_;
  std::vector<kernels::GemmPlan> plans_;
  std::vector<std::int64_t> ends_;  ///< number of units up to and with each GEMM
  std::int64_t threads_ = 1;
};

const void* at_element(const at::Tensor& x, std::int64_t index) {
  return static_cast<const char*>(x.const_data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

void* at_element(at::Tensor& x, std::int64_t index) {
  return static_cast<char*>(x.mutable_data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

}  // namespace

void cpu_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate, std::int64_t packed_columns) {
  MEGATRON_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1),
                 "a GEMM of ", a.sizes(), " and ", b.sizes(), " into ", out.sizes());
  MEGATRON_CHECK(out.stride(1) == 1 || out.size(1) == 1, "the rows of a GEMM's output have stride ",
                 out.stride(1));
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!accumulate) out.zero_();
    if (bias.defined()) out.add_(bias);
    return;
  }
  const at::Tensor left = readable(a), right = readable(b),
                   added = bias.defined() ? bias.contiguous() : bias;
  run(gemm_of(out, left, right, added, accumulate, packed_columns));
}

void cpu_grouped_gemm(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                      at::IntArrayRef rows, const at::Tensor& bias, std::int64_t packed_columns) {
  const at::Tensor left = readable(a),
                   right = b.stride(1) == 1 || b.stride(2) == 1 ? b : b.contiguous(),
                   added = bias.defined() ? bias.contiguous() : bias;
  kernels::GemmArguments gemm =
      gemm_of(out, left, right[0], added, /*accumulate=*/false, packed_columns);
  gemm.out_stride = gemm.n;
  std::vector<kernels::GemmArguments> gemms;
  for_each_group(rows, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    gemm.a = at_element(left, first * gemm.a_row_stride);
    gemm.b = at_element(right, group * right.stride(0));
    gemm.out = at_element(out, first * gemm.n);
    if (added.defined()) gemm.bias = at_element(added, group * gemm.n);
    gemm.m = count;
    gemms.push_back(gemm);
  });
  GemmGroup(std::move(gemms)).run();
}

std::int64_t cpu_pack_weight(const at::Tensor& weight) {
  MEGATRON_CHECK(weight.is_contiguous(), "a weight to pack has strides ", weight.strides());
  const kernels::Type type = kernel_type(weight.scalar_type());
  const std::int64_t n = weight.size(-2), k = weight.size(-1),
                     packed = kernels::columns_packed_in_place(type, n, k),
                     panels = packed / kernels::kPanelColumns;
  if (packed == 0) return 0;
  const std::int64_t line_bytes = k * static_cast<std::int64_t>(weight.element_size());
  auto* const lines = static_cast<char*>(weight.mutable_data_ptr());
  dynamic_parallel_for(
      weight.numel() / (n * k) * panels, threads_for(weight.numel()), [&](std::int64_t i) {
        const std::int64_t line = i / panels * n + i % panels * kernels::kPanelColumns;
        kernels::pack_in_place(type, lines + line * line_bytes, k,
                               thread_workspace(kernels::kPanelColumns * line_bytes));
      });
  return packed;
}

void cpu_grouped_gemm_over_rows(at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                at::IntArrayRef rows, bool accumulate) {
  const at::Tensor left = readable(a).t(), right = readable(b);
  kernels::GemmArguments gemm = gemm_of(out[0], left, right, {}, accumulate, 0);
  gemm.out_stride = gemm.n;
  std::vector<kernels::GemmArguments> gemms;
  for_each_group(rows, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
    if (count == 0) {
      if (!accumulate) out[group].zero_();
      return;
    }
    gemm.a = at_element(left, first * gemm.a_depth_stride);
    gemm.b = at_element(right, first * gemm.b_depth_stride);
    gemm.out = at_element(out, group * gemm.m * gemm.n);
    gemm.k = count;
    gemms.push_back(gemm);
  });
  GemmGroup(std::move(gemms)).run();
}

}  // namespace megatron
