#include "megatron/ops/coordinate_uniforms.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "megatron/base/philox.h"

namespace megatron {

at::Tensor coordinate_uniforms(at::IntArrayRef shape, std::uint64_t key, const at::Tensor& ordinals,
                               const RowPositions& positions) {
  if (ordinals.is_meta()) return at::empty(shape, ordinals.options().dtype(at::kFloat));
  const std::int64_t batch = shape[1], columns = shape[2];
  const bool is_packed = positions.ordinals.defined();
  const at::Tensor samples = (is_packed ? positions.ordinals : ordinals).cpu().contiguous(),
                   places =
                       positions.each.defined()
                           ? positions.each.cpu().contiguous()
                           : at::arange(positions.first, positions.first + shape[0], at::kLong),
                   out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const auto* sample = samples.const_data_ptr<std::int64_t>();
  const auto* place = places.const_data_ptr<std::int64_t>();
  auto* to = out.mutable_data_ptr<float>();
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(columns, 1));
  at::parallel_for(0, shape[0] * batch, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = place[row / batch] * columns;
      std::array<std::uint32_t, 4> lanes{};
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto element = static_cast<std::uint64_t>(first + c);
        if (c == 0 || element % 4 == 0)
          lanes = philox_block(key, element / 4,
                               static_cast<std::uint64_t>(sample[is_packed ? row : row % batch]));
        to[row * columns + c] = (static_cast<float>(lanes[element % 4] >> 9) + 0.5f) * 0x1p-23f;
      }
    }
  });
  return out.to(ordinals.device());
}

}  // namespace megatron
