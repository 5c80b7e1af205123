// Gradient statistics by blocks, and the update through the kernels of this CPU.
#include "kernels/cpu/optimizer_kernels.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/block_squares.h"
#include "kernels/cpu/conversions.h"
#include "kernels/cpu/optimizer_update.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kBlock = kStateBlock;

template <class T>
std::int64_t zeros(const T* values, std::int64_t count) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += values[i] == 0;
  return found;
}

/// Calls use(values, count) with elements [begin, end) of a gradient, converted to f32 or f64. The
/// range has at most one block.
template <class Use>
auto with_block(const UpdateChunk& chunk, Type type, std::int64_t begin, std::int64_t end,
                Use use) {
  const void* values = element_at(chunk.grad, type, begin);
  if (type == Type::f64) return use(static_cast<const double*>(values), end - begin);
  if (type == Type::f32) return use(static_cast<const float*>(values), end - begin);
  float buffer[kBlock];
  conversions().to_f32(values, type, buffer, end - begin);
  return use(static_cast<const float*>(buffer), end - begin);
}

/// Returns the sum of squares of a block, some of whose elements are skipped.
double squares_of_some(const UpdateChunk& chunk, Type type, std::int64_t begin, std::int64_t end) {
  return with_block(chunk, type, begin, end, [&](const auto* values, std::int64_t count) {
    std::remove_cvref_t<decltype(*values)> counted[kBlock];
    for (std::int64_t i = 0; i < count; ++i)
      counted[i] = begin + i >= chunk.skip_begin && begin + i < chunk.skip_end ? 0 : values[i];
    return portable::squares(counted, count);
  });
}

}  // namespace

void update_chunk(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                  const StepScalars& scalars) {
  optimizer_kernels().update(chunk, types, rules, scalars);
}

double sum_of_squares(const UpdateChunk& chunk, Type type) {
  double blocks[kChunkElements / kBlock];
  std::int64_t num_blocks = 0, begin = 0;
  if (type == Type::f32 && chunk.skip_begin == chunk.skip_end) {
    num_blocks = chunk.count / kBlock;
    begin = num_blocks * kBlock;
    optimizer_kernels().block_squares(static_cast<const float*>(chunk.grad), num_blocks, blocks);
  }
  for (; begin < chunk.count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, chunk.count);
    const bool all_count = end <= chunk.skip_begin || begin >= chunk.skip_end;
    const auto of_all = [](const auto* values, std::int64_t count) {
      return portable::squares(values, count);
    };
    blocks[num_blocks++] = all_count ? with_block(chunk, type, begin, end, of_all)
                                     : squares_of_some(chunk, type, begin, end);
  }
  return pairwise_sum(blocks, num_blocks);
}

std::int64_t count_zeros(const UpdateChunk& chunk, Type type) {
  std::int64_t found = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kBlock)
      found +=
          with_block(chunk, type, begin, std::min(begin + kBlock, end),
                     [](const auto* values, std::int64_t count) { return zeros(values, count); });
  };
  add(0, chunk.skip_begin);
  add(chunk.skip_end, chunk.count);
  return found;
}

}  // namespace megatron::kernels
