#include "megatron/transformer/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "megatron/base/philox.h"

namespace megatron {
namespace {

constexpr std::int64_t kChunk = 4096;

double uniform(std::uint32_t lane) { return (lane + 0.5) * 0x1p-32; }

std::array<double, 4> draw_block(const Init& init, std::uint64_t key, std::int64_t block) {
  const auto lanes = philox_block(key, static_cast<std::uint64_t>(block), 0);
  std::array<double, 4> out{};
  if (init.kind == Init::Kind::uniform) {
    for (int lane = 0; lane < 4; ++lane) out[lane] = init.value * (2 * uniform(lanes[lane]) - 1);
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

/// Calls run(global index, local index, length) for every contiguous run of a box.
template <class Run>
void for_each_run(const Box& box, const Shape& global, const Shape& local, Run run) {
  const auto dims = static_cast<int>(box.shape.size());
  int tail = dims - 1;  // dimensions after `tail` are whole in both tensors, so the run spans them
  while (tail > 0 && box.shape[tail] == global[tail] && box.shape[tail] == local[tail]) --tail;
  std::int64_t length = 1;
  for (int d = tail; d < dims; ++d) length *= box.shape[d];
  const std::int64_t runs = num_elements(box.shape) / std::max<std::int64_t>(length, 1);
  for (std::int64_t index = 0; index < runs; ++index) {
    std::int64_t rest = index;
    Shape position(dims, 0);
    for (int d = tail - 1; d >= 0; --d) {
      position[d] = rest % box.shape[d];
      rest /= box.shape[d];
    }
    std::int64_t global_flat = 0, local_flat = 0;
    for (int d = 0; d < dims; ++d) {
      global_flat = global_flat * global[d] + box.global_offset[d] + position[d];
      local_flat = local_flat * local[d] + box.local_offset[d] + position[d];
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
    const std::int64_t begin = std::max(first, block * 4), end = std::min(first + count, block * 4 + 4);
    for (std::int64_t element = begin; element < end; ++element) out[element - first] = values[element - block * 4];
  }
}

void initialize_parameter(const Parameter& parameter, at::Tensor value, std::uint64_t seed) {
  if (!value.is_cpu()) {  // drawn here, copied once
    const at::Tensor drawn = at::empty(value.sizes(), value.options().device(at::kCPU));
    initialize_parameter(parameter, drawn, seed);
    value.copy_(drawn);
    return;
  }
  const Init& init = parameter.spec().init;
  const Shape local = parameter.local_shape();
  value.zero_();
  at::Tensor flat = value.view({-1});
  const at::ScalarType main_type = value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;  // 16-bit weights are rounded float32 ones
  const std::uint64_t key = philox_key(seed, parameter.name());
  for (const Box& box : parameter.sharding().boxes(parameter.axis())) {
    for_each_run(box, parameter.sharding().global_shape, local, [&](std::int64_t global_index, std::int64_t local_index, std::int64_t length) {
      if (init.kind == Init::Kind::constant) {
        flat.narrow(0, local_index, length).fill_(init.value);
        return;
      }
      at::parallel_for(0, (length + kChunk - 1) / kChunk, 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> numbers(kChunk);
        for (std::int64_t chunk = begin; chunk < end; ++chunk) {
          const std::int64_t offset = chunk * kChunk, count = std::min(kChunk, length - offset);
          draw(init, key, global_index + offset, std::span(numbers).first(count));
          flat.narrow(0, local_index + offset, count).copy_(at::from_blob(numbers.data(), {count}, at::kDouble).to(main_type));
        }
      });
    });
  }
}

Init Init::xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
  return {Kind::uniform, std::sqrt(6.0 / static_cast<double>(fan_in + fan_out))};
}

}  // namespace megatron
