// How fast a device can multiply matrices, the denominator of MFU: measured on a CPU, known by name
// on a GPU.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace megatron {

/// Dense peak of a GPU in FLOP/s for GEMMs of `dtype`, by its name as the driver gives it ("NVIDIA
/// H100 80GB HBM3"): NVIDIA's data sheets without sparsity; float32 is computed without TF32.
/// Nothing for a GPU or dtype that the table lacks.
std::optional<double> gpu_peak_flops(std::string_view name, c10::ScalarType dtype);

/// Memory bandwidth of the same GPU in bytes/s.
std::optional<double> gpu_peak_bandwidth(std::string_view name);

/// Best of several GEMMs in FLOP/s; on a CPU also of our innermost product from the L1 cache, in
/// all threads. Takes a tenth of a second.
double measured_peak_flops(c10::Device device, c10::ScalarType dtype);

/// Best of reading, copying and updating buffers larger than the caches, in bytes read and written
/// per second.
double measured_peak_bandwidth(c10::Device device);

/// By the table or else measured; `name` is a GPU's, empty for a CPU.
double peak_flops(c10::Device device, std::string_view name, c10::ScalarType dtype);
double peak_bandwidth(c10::Device device, std::string_view name);

}  // namespace megatron
