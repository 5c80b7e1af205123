// Determines a device's peak GEMM rate, the denominator of MFU, and its memory bandwidth: measured
// on a CPU, looked up by name on a GPU.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace megatron {

/// Waits until a GPU has finished its work.
void synchronize(c10::Device device);

/// Returns the dense peak of a GPU in FLOP/s for GEMMs of `dtype`, from NVIDIA's data sheets
/// without sparsity; float32 without TF32. `name` is the driver's name of the GPU ("NVIDIA H100
/// 80GB HBM3"). Returns nullopt for a GPU or dtype that the table lacks.
std::optional<double> gpu_peak_flops(std::string_view name, c10::ScalarType dtype);

/// Returns the GPU's memory bandwidth in bytes/s; nullopt when the table lacks it.
std::optional<double> gpu_peak_bandwidth(std::string_view name);

/// Measures the best rate of several GEMMs in FLOP/s; on a CPU also that of our GEMM micro-kernel
/// on data in the L1 cache, on all threads. Takes about 0.1 s.
double measured_peak_flops(c10::Device device, c10::ScalarType dtype);

/// Measures the best rate of reading, copying and updating buffers larger than the caches, in bytes
/// read and written per second.
double measured_peak_bandwidth(c10::Device device);

/// Returns the peak from the table, or measures it if the table lacks it. `name` is the GPU's name;
/// empty for a CPU.
double peak_flops(c10::Device device, std::string_view name, c10::ScalarType dtype);
double peak_bandwidth(c10::Device device, std::string_view name);

}  // namespace megatron
