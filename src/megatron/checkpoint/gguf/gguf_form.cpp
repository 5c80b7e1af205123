// The numbers of GGUF files.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "megatron/checkpoint/gguf/gguf_model.h"

namespace megatron {
namespace {

/// Block of Q8_0: a scale and 32 numbers of 8 bits.
struct Q8Block {
  c10::Half scale;
  std::int8_t numbers[32];
};
static_assert(sizeof(Q8Block) == 34 && kGgufQ80.block_bytes == 34 && kGgufQ80.block_size == 32);

/// Returns rows [heads, two, of, ...] of each head in the order [heads, of, two, ...].
at::Tensor reordered(const at::Tensor& rows, std::int64_t heads, std::int64_t two,
                     std::int64_t of) {
  const std::int64_t columns = rows.numel() / rows.size(0);
  return rows.reshape({heads, two, of, columns}).transpose(1, 2).reshape(rows.sizes());
}

std::string q8_bytes(const at::Tensor& values) {
  const auto* numbers = values.const_data_ptr<float>();
  std::string bytes;
  for (const float* end = numbers + values.numel(); numbers < end; numbers += 32) {
    float most = 0;
    for (int i = 0; i < 32; ++i) most = std::max(most, std::abs(numbers[i]));
    const float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
    Q8Block block{.scale = c10::Half(scale), .numbers = {}};
    for (int i = 0; i < 32; ++i)
      block.numbers[i] = static_cast<std::int8_t>(std::round(numbers[i] * inverse));
    bytes.append(reinterpret_cast<const char*>(&block), sizeof block);
  }
  return bytes;
}

}  // namespace

at::ScalarType number_type(const GgufType& type) {
  return type == kGgufF16 ? at::kHalf : type == kGgufBf16 ? at::kBFloat16 : at::kFloat;
}

at::Tensor restored_rows(at::Tensor stored, const GgufForm& form) {
  if (form.type == kGgufQ80 && stored.dim() == 1) stored = dequantized_q8_0(stored);
  const std::int64_t heads = form.rotary_heads;
  if (heads > 0) stored = reordered(stored, heads, stored.size(0) / heads / 2, 2);
  return form.added == 0 ? stored : stored.to(at::kFloat).sub(form.added);
}

at::Tensor dequantized_q8_0(const at::Tensor& packed) {
  std::vector<std::int64_t> shape = packed.sizes().vec();
  shape.back() = shape.back() / 34 * 32;
  const at::Tensor blocks = packed.reshape({-1, 34}),
                   scales = blocks.narrow(1, 0, 2).contiguous().view(at::kHalf),
                   numbers = blocks.narrow(1, 2, 32).view(at::kChar);
  return scales.to(at::kFloat).mul(numbers.to(at::kFloat)).reshape(shape);
}

std::string gguf_bytes(const at::Tensor& theirs, const GgufForm& form) {
  at::Tensor values = theirs.to(at::kFloat);
  const std::int64_t heads = form.rotary_heads;
  if (heads > 0) values = reordered(values, heads, 2, values.size(0) / heads / 2);
  if (form.added != 0) values = values.add(form.added);
  if (form.type == kGgufQ80) return q8_bytes(values.contiguous());
  values = values.to(number_type(form.type)).contiguous();
  return {static_cast<const char*>(values.const_data_ptr()),
          static_cast<std::size_t>(values.nbytes())};
}

}  // namespace megatron
