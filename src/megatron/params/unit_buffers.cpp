#include "megatron/params/unit_buffers.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

namespace megatron {
namespace {

/// A much larger buffer is left for a unit that needs it, which would otherwise need another one.
constexpr std::int64_t kLargestMultiple = 2;

}  // namespace

void UnitBuffers::reserve(const std::vector<std::int64_t>& sizes, std::size_t count) {
  constexpr int kPasses = 2;  // the first may replace buffers that the second needs
  std::deque<at::Tensor> in_use;
  const auto give_back_oldest = [&] {
    give_back(std::move(in_use.front()));
    in_use.pop_front();
  };
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const std::int64_t bytes : sizes) {
      if (bytes == 0) continue;
      if (in_use.size() == count) give_back_oldest();
      in_use.push_back(take(bytes));
    }
    while (!in_use.empty()) give_back_oldest();
  }
}

at::Tensor UnitBuffers::take(std::int64_t bytes) {
  if (bytes == 0) return {};
  const auto fits = std::ranges::find_if(
      free_, [bytes](const at::Tensor& buffer) { return buffer.numel() >= bytes; });
  if (fits != free_.end() && fits->numel() <= kLargestMultiple * bytes) {
    at::Tensor buffer = std::move(*fits);
    free_.erase(fits);
    return buffer;
  }
  if (fits != free_.begin()) free_.erase(std::prev(fits));
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
}

void UnitBuffers::give_back(at::Tensor buffer) {
  if (!buffer.defined()) return;
  const bool is_unused = buffer.use_count() == 1 && buffer.storage().use_count() == 1;
  if (!is_unused) return;
  const auto larger = std::ranges::find_if(
      free_, [&](const at::Tensor& other) { return other.numel() > buffer.numel(); });
  free_.insert(larger, std::move(buffer));
}

std::int64_t UnitBuffers::free_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& buffer : free_) bytes += buffer.numel();
  return bytes;
}

std::vector<std::int64_t> forward_and_backward(const std::vector<std::int64_t>& backward) {
  std::vector<std::int64_t> visits(backward.rbegin(), backward.rend());
  if (!backward.empty()) visits.insert(visits.end(), std::next(backward.begin()), backward.end());
  return visits;
}

at::Tensor BufferCursor::next(std::int64_t size, at::ScalarType dtype) {
  const std::int64_t bytes = size * static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor part = buffer_.narrow(0, used_, bytes).view(dtype);
  used_ += bytes;
  return part;
}

}  // namespace megatron
