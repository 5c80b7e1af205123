#include "megatron/params/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/random_kernels.h"
#include "megatron/base/philox.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

constexpr std::int64_t kChunk = 4096;

double uniform(std::uint32_t lane) { return (lane + 0.5) * 0x1p-32; }

/// Returns the number that a uniform u in (0, 1) becomes.
double from_uniform(const Init& init, double u) {
  constexpr double kLeastStep = 1e-3;
  if (init.kind == Init::Kind::uniform) return init.value * (2 * u - 1);
  if (init.kind == Init::Kind::log_of_uniform) return std::log(1 + (init.value - 1) * u);
  const double step = kLeastStep * std::exp(u * std::log(init.value / kLeastStep));
  return step + std::log(-std::expm1(-step));
}

std::array<double, 4> draw_block(const Init& init, std::uint64_t key, std::int64_t block) {
  const auto lanes = philox_block(key, static_cast<std::uint64_t>(block), 0);
  std::array<double, 4> out{};
  if (init.kind != Init::Kind::normal) {
    for (int lane = 0; lane < 4; ++lane) out[lane] = from_uniform(init, uniform(lanes[lane]));
    return out;
  }
  for (int pair = 0; pair < 4; pair += 2) {
    const double radius = init.value * std::sqrt(-2 * std::log(uniform(lanes[pair])));
    const double angle = 2 * std::numbers::pi * uniform(lanes[pair + 1]);
    out[pair] = radius * std::cos(angle);
    out[pair + 1] = radius * std::sin(angle);
  }
  return out;
}

double exact_normal(double std, std::uint64_t key, std::int64_t element) {
  return draw_block(Init::normal(std), key, element / 4)[static_cast<std::size_t>(element % 4)];
}

/// Draws at most kChunk elements first … first + count of a site in float64 and rounds them to
/// float32.
void draw_floats(const Init& init, std::uint64_t key, std::int64_t first, std::int64_t count,
                 float* out) {
  if (init.kind == Init::Kind::normal)
    return kernels::random_kernels().normals(init.value, key, first, count, out, exact_normal);
  std::array<double, kChunk> numbers;
  draw(init, key, first, std::span(numbers).first(static_cast<std::size_t>(count)));
  std::copy_n(numbers.data(), count, out);
}

/// Draws elements in the weights' dtype. 16-bit values are rounded from float32.
void draw_chunk(const Init& init, std::uint64_t key, std::int64_t first, std::int64_t count,
                void* out, kernels::Type type) {
  if (type == kernels::Type::f64)
    return draw(init, key, first,
                std::span(static_cast<double*>(out), static_cast<std::size_t>(count)));
  if (type == kernels::Type::f32)
    return draw_floats(init, key, first, count, static_cast<float*>(out));
  std::array<float, kChunk> numbers;
  draw_floats(init, key, first, count, numbers.data());
  kernels::conversions().from_f32(numbers.data(), out, type, count);
}

bool covers(const std::vector<TensorSlice>& slices, std::int64_t elements) {
  for (const TensorSlice& slice : slices) elements -= num_elements(slice.shape);
  return elements == 0;
}

/// Calls run(global index, local index, length) for every contiguous run of a slice.
template <class Run>
void for_each_run(const TensorSlice& slice, const Shape& global, const Shape& local, Run run) {
  const auto dims = static_cast<int>(slice.shape.size());
  int tail = dims - 1;  // dimensions after `tail` are whole in both tensors, so a run spans them
  while (tail > 0 && slice.shape[tail] == global[tail] && slice.shape[tail] == local[tail]) --tail;
  std::int64_t length = 1;
  for (int d = tail; d < dims; ++d) length *= slice.shape[d];
  const std::int64_t runs = num_elements(slice.shape) / std::max<std::int64_t>(length, 1);
  for (std::int64_t index = 0; index < runs; ++index) {
    std::int64_t rest = index;
    Shape position(dims, 0);
    for (int d = tail - 1; d >= 0; --d) {
      position[d] = rest % slice.shape[d];
      rest /= slice.shape[d];
    }
    std::int64_t global_flat = 0, local_flat = 0;
    for (int d = 0; d < dims; ++d) {
      global_flat = global_flat * global[d] + slice.global_offset[d] + position[d];
      local_flat = local_flat * local[d] + slice.local_offset[d] + position[d];
    }
    run(global_flat, local_flat, length);
  }
}

}  // namespace

void draw(const Init& init, std::uint64_t key, std::int64_t first, std::span<double> out) {
  if (init.kind == Init::Kind::constant) {
    std::ranges::fill(out, init.value);
    return;
  }
  const auto count = static_cast<std::int64_t>(out.size());
  for (std::int64_t block = first / 4; block * 4 < first + count; ++block) {
    const auto values = draw_block(init, key, block);
    const std::int64_t begin = std::max(first, block * 4),
                       end = std::min(first + count, block * 4 + 4);
    for (std::int64_t element = begin; element < end; ++element)
      out[element - first] = values[element - block * 4];
  }
}

void initialize_parameter(const Parameter& parameter, at::Tensor value, std::uint64_t seed) {
  if (!value.is_cpu()) {  // drawn on the CPU, copied once
    const at::Tensor drawn = at::empty(value.sizes(), value.options().device(at::kCPU));
    initialize_parameter(parameter, drawn, seed);
    value.copy_(drawn);
    return;
  }
  const Init& init = parameter.spec().init;
  const Shape local = parameter.local_shape();
  const std::vector<TensorSlice> slices = parameter.slices();
  if (!covers(slices, value.numel())) value.zero_();
  const at::Tensor flat = value.view({-1});
  const kernels::Type type = kernel_type(value.scalar_type());
  const std::uint64_t key = philox_key(seed, parameter.name());
  for (const TensorSlice& slice : slices) {
    for_each_run(slice, parameter.sharding().global_shape, local,
                 [&](std::int64_t global_index, std::int64_t local_index, std::int64_t length) {
                   if (init.kind == Init::Kind::constant) {
                     flat.narrow(0, local_index, length).fill_(init.value);
                     return;
                   }
                   auto* const bytes = static_cast<std::byte*>(flat.mutable_data_ptr()) +
                                       local_index * flat.element_size();
                   at::parallel_for(0, (length + kChunk - 1) / kChunk, 1,
                                    [&](std::int64_t begin, std::int64_t end) {
                                      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
                                        const std::int64_t offset = chunk * kChunk;
                                        draw_chunk(init, key, global_index + offset,
                                                   std::min(kChunk, length - offset),
                                                   bytes + offset * flat.element_size(), type);
                                      }
                                    });
                 });
  }
}

Init Init::xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
  return uniform(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
}

}  // namespace megatron
