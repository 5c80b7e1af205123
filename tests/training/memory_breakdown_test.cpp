#include "megatron/training/observability/memory_breakdown.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <map>
#include <numeric>

namespace megatron {
namespace {

constexpr double kKilobyte = 1024, kMegabyte = 1024 * 1024;

TEST(MappedMemory, SortsMappingsByKind) {
  const MappedMemory memory = mapped_memory(
      "55d0-55d1 r-xp 00000000 fd:01 123      /usr/bin/megatron\nSize:   40 kB\nRss:    10 "
      "kB\nVmFlags: rd ex\n"
      "7f00-7f01 rw-p 00000000 00:00 0 \nRss:   200 kB\n"
      "7f02-7f03 r--s 00000000 fd:01 77       /data/my corpus.bin\nRss:  3000 kB\n"
      "7f04-7f05 r--p 00000000 fd:01 99       /opt/lib/libtorch_cpu.so\nRss: 40000 kB\n"
      "7f06-7f07 rw-p 00000000 00:00 0        [heap]\nRss: 500000 kB\n");
  EXPECT_EQ(memory.heap, 500000 * kKilobyte);
  EXPECT_EQ(memory.anonymous, 200 * kKilobyte);
  EXPECT_EQ(memory.data_files, 3000 * kKilobyte);
  EXPECT_EQ(memory.program, 40010 * kKilobyte);
  EXPECT_EQ(mapped_memory("no such format\nRss:\n").total(), 0);
}

double sum(const MemoryBreakdown& parts) {
  return std::accumulate(parts.parts.begin(), parts.parts.end(), 0.0,
                         [](double total, const auto& part) { return total + part.second; });
}

TEST(MemoryBreakdown, AddUpOnHostAndDevice) {
  const ModelMemory model{
      .parameters = 10, .main_parameters = 20, .gradients = 20, .optimizer_state = 40};
  const TensorMemory tensors{.allocated_bytes = 100, .peak_bytes = 160, .reserved_bytes = 200};
  const MemoryBreakdown host = cpu_memory_breakdown(
      model, tensors, {.heap = 200, .anonymous = 300, .data_files = 50, .program = 70},
      /*heap_bytes=*/130);
  EXPECT_EQ(host.total, 620);
  EXPECT_EQ(sum(host), 620);
  EXPECT_THAT(host.parts, testing::IsSupersetOf(
                              {std::pair<std::string, double>("activations (peak of a step)", 60),
                               {"other tensors", 10},
                               {"heap without tensors", 130},
                               {"freed, kept by the allocator", 110},
                               {"mapped data files", 50},
                               {"remainder", 100}}));
  const MemoryBreakdown device = gpu_memory_breakdown(model, tensors);
  EXPECT_EQ(sum(device), 200);
  EXPECT_EQ(device.parts.back(), (std::pair<std::string, double>("remainder", 40)));
}

TEST(MemoryTable, ShowsTheoryBesideMeasure) {
  const MemoryBreakdown measured{.parts = {{"parameters", 2 * kMegabyte},
                                           {"activations (peak of a step)", kMegabyte},
                                           {"remainder", 0}},
                                 .total = 3 * kMegabyte};
  const std::string table = memory_table(
      2, measured,
      {.weight_and_optimizer_bytes = 4 * kMegabyte, .activation_bytes = 5 * kMegabyte});
  EXPECT_THAT(table,
              testing::StartsWith(
                  "[Rank 0] (after 2 iterations) memory by part (MB):\n    parameters ....."));
  EXPECT_THAT(table, testing::HasSubstr(": 1.00 (theory: 5.00)"));
  EXPECT_THAT(table, testing::EndsWith(": 2.00 (theory: 4.00)"));
}

TEST(TensorMemory, CountsWhatTensorsHold) {
  use_caching_cpu_allocator();
  const c10::Device cpu(c10::kCPU);
  const double before = tensor_memory(cpu).allocated_bytes;
  reset_peak_tensor_memory(cpu);
  {
    const at::Tensor first = at::ones({1 << 20});
    { const at::Tensor second = at::empty({1 << 20}); }
    EXPECT_NEAR(tensor_memory(cpu).allocated_bytes - before, 4.0 * (1 << 20), 4096);
  }
  EXPECT_EQ(tensor_memory(cpu).allocated_bytes, before);
  EXPECT_NEAR(tensor_memory(cpu).peak_bytes - before, 8.0 * (1 << 20), 8192);
}

}  // namespace
}  // namespace megatron
