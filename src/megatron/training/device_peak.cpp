#include "megatron/training/device_peak.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace megatron {
namespace {

/// One row of the data sheets: TFLOP/s without sparsity, GB/s.
struct Gpu {
  std::string_view name;  ///< part of the driver's name; the first row that fits counts
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
  const auto found = std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& gpu) { return name.find(gpu.name) != std::string_view::npos; });
  return found == kGpus.end() ? nullptr : &*found;
}

using Clock = std::chrono::steady_clock;

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

/// Seconds of the fastest of the runs that fit into the time given; at least two.
template <class Work>
double best_time(c10::Device device, double budget_s, Work work) {
  double best = 0, spent = 0;
  wait_for(device);
  for (int run = 0; run < 2 || spent < budget_s; ++run) {
    const Clock::time_point start = Clock::now();
    work();
    wait_for(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    spent += seconds;
    best = run == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

}  // namespace

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

double measured_peak_flops(c10::Device device, c10::ScalarType dtype) {
  const std::int64_t size = device.is_cpu() ? 1024 : 8192;
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  const at::Tensor a = at::ones({size, size}, options), b = at::ones({size, size}, options);
  const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return operations / best_time(device, 0.3, [&] { at::mm(a, b); });
}

double measured_peak_bandwidth(c10::Device device) {
  const std::int64_t elements = device.is_cpu() ? 32 << 20 : 256 << 20;
  const at::NoGradGuard no_grad;
  const at::Tensor source = at::ones({elements}, at::TensorOptions().device(device).dtype(at::kFloat));
  at::Tensor target = at::ones_like(source);
  return 2.0 * static_cast<double>(source.nbytes()) / best_time(device, 0.2, [&] { target.copy_(source); });
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
