#include "megatron/training/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>
#include <cstring>

namespace megatron {
namespace {

/// What the C library really set aside, the same when it is given back.
std::int64_t size_of(void* data) { return static_cast<std::int64_t>(::malloc_usable_size(data)); }

/// LibTorch's own CPU allocation, counted.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) add(size_of(data));
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override { std::memcpy(target, source, bytes); }

  static CountingAllocator& instance() {
    static CountingAllocator allocator;
    return allocator;
  }

  TensorMemory read() const { return {.live_bytes = static_cast<double>(live_.load()), .peak_bytes = static_cast<double>(peak_.load())}; }
  void forget_peak() { peak_ = live_.load(); }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    instance().live_ -= size_of(data);
    c10::free_cpu(data);
  }
  void add(std::int64_t bytes) {
    const std::int64_t live = live_ += bytes;
    std::int64_t peak = peak_;
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
  }

  std::atomic<std::int64_t> live_ = 0, peak_ = 0;
};

c10::DeviceAllocator& caching_allocator(c10::Device device) { return *c10::getDeviceAllocator(device.type()); }

}  // namespace

void start_counting_tensor_memory() { c10::SetAllocator(c10::kCPU, &CountingAllocator::instance(), /*priority=*/100); }

TensorMemory tensor_memory(c10::Device device) {
  if (device.is_cpu()) return CountingAllocator::instance().read();
  const auto stats = caching_allocator(device).getDeviceStats(device.index());
  const auto total = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.live_bytes = static_cast<double>(stats.allocated_bytes[total].current),
          .peak_bytes = static_cast<double>(stats.allocated_bytes[total].peak),
          .reserved_bytes = static_cast<double>(stats.reserved_bytes[total].current)};
}

void forget_peak_tensor_memory(c10::Device device) {
  if (device.is_cpu()) {
    CountingAllocator::instance().forget_peak();
  } else {
    caching_allocator(device).resetPeakStats(device.index());
  }
}

}  // namespace megatron
