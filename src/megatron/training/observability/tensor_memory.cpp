#include "megatron/training/observability/tensor_memory.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "megatron/base/cpu_caching_allocator.h"
#include "megatron/base/format.h"
#include "megatron/base/memory_limits.h"
#include "megatron/training/observability/out_of_memory.h"

namespace megatron {
namespace {

constexpr std::size_t kGrowth = 2 << 20, kSmallGrowth = 256 << 10;
/// Blocks up to this size have a separate heap. Otherwise small blocks that outlive a step, such as
/// samples prepared ahead, would divide the gaps that the largest tensors of the next step need.
constexpr std::size_t kSmall = 1 << 20;

/// Returns the size of the reserved address range: twice this machine's memory, because
/// fragmentation spreads blocks over more addresses than bytes in use.
std::size_t address_space() {
  return 2 * static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns whether the address space is unlimited. Under RLIMIT_AS (ulimit -v, or h_vmem of a
/// scheduler), reserved address space would count against the limit.
bool has_unlimited_addresses() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
}

/// Populates pages now, on all threads; one call for many pages costs about half of separate page
/// faults. Before Linux 5.14 the call fails and the pages are populated on first access.
void prefault_pages(std::byte* data, std::size_t bytes) {
  const auto chunks = static_cast<std::int64_t>(bytes / kGrowth);
  at::parallel_for(0, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    ::madvise(data + static_cast<std::size_t>(begin) * kGrowth,
              static_cast<std::size_t>(end - begin) * kGrowth, MADV_POPULATE_WRITE);
  });
}

class TensorAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    void* data = (bytes <= kSmall ? small_ : large_).allocate(bytes);
    if (data == nullptr)
      throw OutOfMemoryError("a tensor of " + std::to_string(bytes) +
                             " bytes could not be allocated");
    add(static_cast<std::int64_t>(CpuCachingAllocator::usable_size(data)));
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

  /// Never destroyed, because tensors may outlive static objects.
  static TensorAllocator& instance() {
    static TensorAllocator& allocator = *new TensorAllocator;
    return allocator;
  }

  TensorMemory read() const {
    return {.allocated_bytes = static_cast<double>(live_.load()),
            .peak_bytes = static_cast<double>(peak_.load()),
            .reserved_bytes = static_cast<double>(small_.statistics().reserved_bytes +
                                                  large_.statistics().reserved_bytes)};
  }
  TensorAllocations allocations() const {
    const CpuCachingAllocator::Statistics small = small_.statistics(), large = large_.statistics();
    return {.tensors = small.allocations + large.allocations,
            .system = small.system_calls + large.system_calls};
  }
  bool owns(const void* address) const { return small_.owns(address) || large_.owns(address); }
  void reset_peak() { peak_ = live_.load(); }
  void empty_cache() {
    small_.empty_cache();
    large_.empty_cache();
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    TensorAllocator& self = instance();
    self.live_ -= static_cast<std::int64_t>(CpuCachingAllocator::usable_size(data));
    (self.small_.owns(data) ? self.small_ : self.large_).free(data);
  }
  void add(std::int64_t bytes) {
    const std::int64_t live = live_ += bytes;
    std::int64_t peak = peak_;
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
  }

  CpuCachingAllocator small_{{.address_space = address_space() / 8,
                              .reserve_upfront = has_unlimited_addresses(),
                              .growth_bytes = kSmallGrowth}};
  CpuCachingAllocator large_{{.address_space = address_space(),
                              .reserve_upfront = has_unlimited_addresses(),
                              .growth_bytes = kGrowth,
                              .on_grow = prefault_pages}};
  std::atomic<std::int64_t> live_ = 0, peak_ = 0;
};

c10::DeviceAllocator& caching_allocator(c10::Device device) {
  return *c10::getDeviceAllocator(device.type());
}

constexpr double kMegabyte = 1024 * 1024;

MemoryMetrics host_metrics() {
  const struct mallinfo2 heap = ::mallinfo2();
  return {.reserved_bytes = process_status("VmRSS:"),
          .max_reserved_bytes = process_status("VmHWM:"),
          .allocated_bytes = static_cast<double>(heap.uordblks + heap.hblkhd) +
                             tensor_memory(c10::kCPU).allocated_bytes};
}

/// Returns the bytes in use on `device` by all processes (for a CPU, of the machine's memory).
double device_memory_used(c10::Device device) {
  if (device.is_cpu()) return machine_memory("MemTotal:") - machine_memory("MemAvailable:");
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<double>(total) - static_cast<double>(free);
}

}  // namespace

void use_caching_cpu_allocator() {
  c10::SetAllocator(c10::kCPU, &TensorAllocator::instance(), /*priority=*/100);
}

void keep_freed_memory() {
  use_caching_cpu_allocator();
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 1 << 20);  // of each thread's arena; ulimit -d counts it
  // Each thread would have an arena of its own, which reserves 64 MiB of addresses.
  if (host_memory_limits().address_space > 0) mallopt(M_ARENA_MAX, 1);
}

TensorMemory tensor_memory(c10::Device device) {
  if (device.is_cpu()) return TensorAllocator::instance().read();
  const auto stats = caching_allocator(device).getDeviceStats(device.index());
  const auto total = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.allocated_bytes = static_cast<double>(stats.allocated_bytes[total].current),
          .peak_bytes = static_cast<double>(stats.allocated_bytes[total].peak),
          .reserved_bytes = static_cast<double>(stats.reserved_bytes[total].current)};
}

bool is_tensor_memory(const void* address) { return TensorAllocator::instance().owns(address); }

void reset_peak_tensor_memory(c10::Device device) {
  if (device.is_cpu()) {
    TensorAllocator::instance().reset_peak();
  } else {
    caching_allocator(device).resetPeakStats(device.index());
  }
}

TensorAllocations tensor_allocations() { return TensorAllocator::instance().allocations(); }

void empty_tensor_cache() { TensorAllocator::instance().empty_cache(); }

MemoryMetrics process_memory(c10::Device device) {
  if (device.is_cpu()) return host_metrics();
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.reserved_bytes = static_cast<double>(stats.reserved_bytes[all].current),
          .max_reserved_bytes = static_cast<double>(stats.reserved_bytes[all].peak),
          .allocated_bytes = static_cast<double>(stats.allocated_bytes[all].current),
          .max_allocated_bytes = static_cast<double>(stats.allocated_bytes[all].peak),
          .allocated_count = static_cast<double>(stats.allocation[all].current)};
}

std::string memory_line(std::int64_t iterations, c10::Device device, bool with_device_total) {
  const MemoryMetrics memory = process_memory(device);
  std::string line =
      format("[Rank 0] (after %lld iterations) memory (MB) | ", static_cast<long long>(iterations));
  if (memory.max_allocated_bytes) {
    line += format("allocated: %.2f | max allocated: %.2f | reserved: %.2f | max reserved: %.2f",
                   memory.allocated_bytes / kMegabyte, *memory.max_allocated_bytes / kMegabyte,
                   memory.reserved_bytes / kMegabyte, memory.max_reserved_bytes / kMegabyte);
  } else {
    line += format("resident: %.2f | max resident: %.2f", memory.reserved_bytes / kMegabyte,
                   memory.max_reserved_bytes / kMegabyte);
  }
  if (with_device_total)
    line += format(" | total device memory used: %.2f", device_memory_used(device) / kMegabyte);
  return line;
}

}  // namespace megatron
