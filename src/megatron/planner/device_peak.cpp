#include "megatron/planner/device_peak.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "kernels/cpu/micro_kernel.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

/// One row of the data sheets: TFLOP/s without sparsity, and GB/s.
struct Gpu {
  std::string_view name;  ///< substring of the driver's name; the first match counts
  double tensor_16bit, single_precision, bandwidth;
};

constexpr std::array kGpus{
    Gpu{"GB200", 2500, 80, 8000},            //
    Gpu{"B200", 2250, 75, 8000},             //
    Gpu{"GH200", 989.4, 66.9, 4000},         //
    Gpu{"H200 NVL", 835.5, 60, 4800},        //
    Gpu{"H200", 989.4, 66.9, 4800},          //
    Gpu{"H100 NVL", 835.5, 60, 3938},        //
    Gpu{"H100 PCIe", 756, 51.2, 2000},       //
    Gpu{"H100", 989.4, 66.9, 3350},          //
    Gpu{"H800", 989.4, 66.9, 3350},          //
    Gpu{"A100-SXM4-80GB", 312, 19.5, 2039},  //
    Gpu{"A100 80GB PCIe", 312, 19.5, 1935},  //
    Gpu{"A100", 312, 19.5, 1555},            //
    Gpu{"A10G", 70, 35, 600},                //
    Gpu{"A10", 125, 31.2, 600},              //
    Gpu{"L40S", 362, 91.6, 864},             //
    Gpu{"L4", 121, 30.3, 300},               //
    Gpu{"V100", 125, 15.7, 900},             //
    Gpu{"T4", 65, 8.1, 320},                 //
    Gpu{"RTX 4090", 165.2, 82.6, 1008},      //
    Gpu{"RTX 3090", 71, 35.6, 936},          //
};

const Gpu* find_gpu(std::string_view name) {
  const auto found = std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& gpu) {
    return name.find(gpu.name) != std::string_view::npos;
  });
  return found == kGpus.end() ? nullptr : &*found;
}

using Clock = std::chrono::steady_clock;

/// Returns the time in seconds of the fastest of several runs; runs until the time budget is used,
/// at least twice.
template <class Work>
double best_time(c10::Device device, double budget_s, Work work) {
  double best = 0, spent = 0;
  synchronize(device);
  for (int run = 0; run < 2 || spent < budget_s; ++run) {
    const Clock::time_point start = Clock::now();
    work();
    synchronize(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    spent += seconds;
    best = run == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

void synchronize(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::optional<double> gpu_peak_flops(std::string_view name, c10::ScalarType dtype) {
  const Gpu* gpu = find_gpu(name);
  if (gpu == nullptr) return std::nullopt;
  switch (dtype) {
    case c10::kBFloat16:
    case c10::kHalf:
      return gpu->tensor_16bit * 1e12;
    case c10::kFloat:
      return gpu->single_precision * 1e12;
    default:
      return std::nullopt;
  }
}

std::optional<double> gpu_peak_bandwidth(std::string_view name) {
  const Gpu* gpu = find_gpu(name);
  return gpu == nullptr ? std::nullopt : std::optional(gpu->bandwidth * 1e9);
}

/// Returns the FLOP/s of repeated micro-kernel calls on data in the L1 cache, on all threads.
double micro_kernel_flops(const kernels::MicroKernel& micro_kernel) {
  constexpr std::int64_t kSteps = 64, kRows = 24, kRepeats = 2000;
  const int threads = at::get_num_threads();
  const double seconds = best_time(c10::kCPU, 0.05, [&] {
    at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t thread = begin; thread < end; ++thread) {
        std::vector<float> a(kRows * kSteps), panel(kernels::kPanelColumns * kSteps),
            out(kRows * kernels::kPanelColumns);
        for (std::int64_t i = 0; i < kRepeats; ++i)
          micro_kernel.multiply({a.data(), kSteps, 1, panel.data(), out.data(),
                                 kernels::kPanelColumns, kRows, kernels::kPanelColumns, kSteps,
                                 false});
      }
    });
  });
  // A bf16 micro-kernel step multiplies pairs of k elements.
  const double elements_per_step = micro_kernel.type == kernels::Type::bf16 ? 2 : 1;
  return 2 * elements_per_step *
         static_cast<double>(kRows * kernels::kPanelColumns * kSteps * kRepeats) * threads /
         seconds;
}

double matmul_flops(c10::Device device, c10::ScalarType dtype) {
  const std::int64_t size = device.is_cpu() ? 1024 : 8192;
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  const at::Tensor a = at::ones({size, size}, options), b = at::ones({size, size}, options);
  const double operations =
      2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return operations / best_time(device, device.is_cpu() ? 0.05 : 0.3, [&] { at::mm(a, b); });
}

double measured_peak_flops(c10::Device device, c10::ScalarType dtype) {
  const double matmul = matmul_flops(device, dtype);
  if (!device.is_cpu() || (dtype != c10::kFloat && dtype != c10::kBFloat16)) return matmul;
  return std::max(matmul, micro_kernel_flops(kernels::gemm_micro_kernel(kernel_type(dtype))));
}

double measured_peak_bandwidth(c10::Device device) {
  const std::int64_t elements = device.is_cpu() ? 32 << 20 : 256 << 20;
  const at::NoGradGuard no_grad;
  const at::Tensor source =
      at::ones({elements}, at::TensorOptions().device(device).dtype(at::kFloat));
  at::Tensor target = at::ones_like(source);
  const auto bytes = static_cast<double>(source.nbytes());
  const double read = bytes / best_time(device, 0.1, [&] { source.sum(); });
  const double copied = 2 * bytes / best_time(device, 0.1, [&] { target.copy_(source); });
  const double updated = 3 * bytes / best_time(device, 0.1, [&] { target.add_(source); });
  return std::max({read, copied, updated});
}

double peak_flops(c10::Device device, std::string_view name, c10::ScalarType dtype) {
  const auto known = gpu_peak_flops(name, dtype);
  return known ? *known : measured_peak_flops(device, dtype);
}

double peak_bandwidth(c10::Device device, std::string_view name) {
  const auto known = gpu_peak_bandwidth(name);
  return known ? *known : measured_peak_bandwidth(device);
}

}  // namespace megatron
