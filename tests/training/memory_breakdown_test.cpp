#include "megatron/training/observability/memory_breakdown.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <bit>
#include <cstdint>

namespace megatron {
namespace {

constexpr double kKilobyte = 1024, kMegabyte = 1024 * 1024;

bool lies_at_7f08(const void* address) { return std::bit_cast<std::uintptr_t>(address) == 0x7f08; }

TEST(MappedMemory, SortsMappingsByKind) {
  const MappedMemory memory = mapped_memory(
      "55d0-55d1 r-xp 00000000 fd:01 123      /usr/bin/megatron\nSize:   40 kB\nRss:    10 "
      "kB\nVmFlags: rd ex\n"
      "7f00-7f01 rw-p 00000000 00:00 0 \nRss:   200 kB\n"
      "7f02-7f03 r--s 00000000 fd:01 77       /data/my corpus.bin\nRss:  3000 kB\n"
      "7f04-7f05 r--p 00000000 fd:01 99       /opt/lib/libtorch_cpu.so\nRss: 40000 kB\n"
      "7f06-7f07 rw-p 00000000 00:00 0        [heap]\nRss: 500000 kB\n"
      "7f08-7f09 rw-p 00000000 00:00 0 \nRss:   700 kB\n"
      "7f0a-7f0b rw-s 00000000 00:01 5        /memfd:megatron-ranks (deleted)\nRss:   800 kB\n",
      lies_at_7f08);
  EXPECT_EQ(memory.heap, 500000 * kKilobyte);
  EXPECT_EQ(memory.anonymous, 200 * kKilobyte);
  EXPECT_EQ(memory.data_files, 3000 * kKilobyte);
  EXPECT_EQ(memory.program, 40010 * kKilobyte);
  EXPECT_EQ(memory.tensors, 700 * kKilobyte);
  EXPECT_EQ(memory.shared, 800 * kKilobyte);
  EXPECT_EQ(mapped_memory("no such format\nRss:\n", lies_at_7f08).total(), 0);
}

MemoryReadings readings() {
  return {
      .model = {.parameters = 10, .main_parameters = 20, .gradients = 20, .optimizer_state = 40},
      .tensors = {.allocated_bytes = 100, .peak_bytes = 160, .reserved_bytes = 200},
      .activations = 35,
      .before_model = {.heap_in_use = 90, .workspaces = 0, .anonymous = 30},
      .now = {.heap_in_use = 130, .workspaces = 15, .anonymous = 50},
      .mapped = {.tensors = 190,
                 .heap = 200,
                 .anonymous = 50,
                 .shared = 8,
                 .data_files = 50,
                 .program = 70},
      .units = 4,
      .peak = 580};
}

TEST(MemoryTable, OfAHostAddsUpToItsPeak) {
  const MemoryTable table = cpu_memory_table(readings());
  EXPECT_EQ(table.model(), 90);
  EXPECT_EQ(table.activations, 35);
  EXPECT_EQ(table.temporary, 160 - 100 - 35 + 4);
  EXPECT_EQ(table.communication, 8);
  EXPECT_EQ(table.host, 10 - 4 + (130 - 90) + 15 + 50);
  EXPECT_EQ(table.workspaces, 15);
  EXPECT_EQ(table.allocator_slack, (190 - 160) + (200 - 130));
  EXPECT_EQ(table.libraries, 70 + 90 + 30);
  EXPECT_EQ(table.peak, 580);
  // The heaps of other threads grew by 20, of which 15 are workspaces; 12 have been given back.
  EXPECT_EQ(table.unexplained(), 20 - 15 + 12);
}

TEST(MemoryTable, OfAGpuIsThatOfItsAllocator) {
  MemoryReadings gpu = readings();
  gpu.peak = 200;
  const MemoryTable table = gpu_memory_table(gpu);
  EXPECT_EQ(table.allocator_slack, 40);
  EXPECT_EQ(table.libraries, 0);
  EXPECT_EQ(table.unexplained(), 0);
}

TEST(MemoryReport, NamesTheLargestRankBesideRankZero) {
  const MemoryTable small{.parameters = 2 * kMegabyte, .peak = 3 * kMegabyte},
      large{.parameters = 2 * kMegabyte, .peak = 5 * kMegabyte};
  const TheoreticalMemory theory{.weight_and_optimizer_bytes = 4 * kMegabyte,
                                 .activation_bytes = 6 * kMegabyte};
  const MemoryTable alone[] = {small}, second[] = {small, large}, first[] = {large, small};
  EXPECT_THAT(memory_report(2, alone, theory),
              testing::StartsWith(
                  "[Rank 0] (after 2 iterations) memory by part (MB):\n    parameters ....."));
  EXPECT_THAT(memory_report(2, alone, theory),
              testing::EndsWith("rank 0: tensors at the peak of a step 2.00; by Megatron's theory "
                                "weights and optimizer 4.00, activations 6.00"));
  EXPECT_THAT(memory_report(2, second, theory),
              testing::HasSubstr("\n    columns: rank 0 | rank 1, the largest of 2\n"));
  EXPECT_THAT(memory_report(2, first, theory),
              testing::HasSubstr("memory by part, of rank 0, the largest of 2 (MB):"));
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
