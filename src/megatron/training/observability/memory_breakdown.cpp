#include "megatron/training/observability/memory_breakdown.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/base/memory_limits.h"
#include "megatron/ops/parallel_kernel.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/shared_memory/shared_memory.h"
#include "megatron/training/observability/tensor_memory.h"

namespace megatron {
namespace {

constexpr double kKilobyte = 1024, kMegabyte = kKilobyte * 1024;

/// Returns the file name in a mapping's head line, or "[heap]" and the like; empty for anonymous
/// memory and for other lines.
std::string_view mapping_path(std::string_view line) {
  for (int field = 0; field < 5; ++field) {
    const auto space = line.find(' ');
    if (space == std::string_view::npos) return {};
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ', space)));
  }
  return line;
}

bool is_mapping_header(std::string_view line) {
  const auto dash = line.find('-'), space = line.find(' ');
  return dash != std::string_view::npos && space != std::string_view::npos && dash < space &&
         line.find(':') > space;
}

const void* mapping_begin(std::string_view head) {
  std::uintptr_t begin = 0;
  std::from_chars(head.data(), head.data() + head.size(), begin, 16);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, which is not read.
  return reinterpret_cast<const void*>(begin);
}

double* mapping_category(MappedMemory& memory, std::string_view head,
                         bool (*holds_tensors)(const void*)) {
  const std::string_view path = mapping_path(head);
  if (path == "[heap]") return &memory.heap;
  if (path.empty() || path.front() != '/')
    return holds_tensors(mapping_begin(head)) ? &memory.tensors : &memory.anonymous;
  if (path.find(kSharedMemoryName) != std::string_view::npos) return &memory.shared;
  const bool is_executable = head.substr(head.find(' ') + 1, 4).find('x') != std::string_view::npos;
  const bool is_library = path.find(".so") != std::string_view::npos ||
                          path.ends_with("/megatron") || path.ends_with("_tests");
  return is_executable || is_library ? &memory.program : &memory.data_files;
}

std::string whole_file(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

MappedMemory mapped_memory_now() {
  return mapped_memory(whole_file("/proc/self/smaps"), is_tensor_memory);
}

/// Returns the parts that tensors account for.
MemoryTable tensor_table(const MemoryReadings& readings) {
  const ModelMemory& model = readings.model;
  return {.parameters = model.parameters,
          .main_parameters = model.main_parameters,
          .gradients = model.gradients,
          .optimizer_state = model.optimizer_state,
          .activations = readings.activations,
          .temporary = readings.tensors.peak_bytes - readings.tensors.allocated_bytes -
                       readings.activations + readings.units,
          .peak = readings.peak};
}

double other_tensors(const MemoryReadings& readings) {
  return readings.tensors.allocated_bytes - readings.model.total() - readings.units;
}

OffloadedMemory counters_of(const OffloadStore* store) {
  if (store == nullptr) return {};
  const OffloadStatistics& statistics = store->statistics();
  return {.now = static_cast<double>(statistics.stored_bytes),
          .peak = static_cast<double>(statistics.peak_stored_bytes),
          .written = static_cast<double>(statistics.written_bytes),
          .read = static_cast<double>(statistics.read_bytes)};
}

/// Returns what lies outside memory, and what passed since `before`.
OffloadedMemory since(const OffloadedMemory& before, OffloadedMemory now) {
  now.written -= before.written;
  now.read -= before.read;
  return now;
}

double tensor_bytes(const MemoryTable& table) {
  return table.model() + table.activations + table.temporary;
}

}  // namespace

MappedMemory mapped_memory(std::string_view smaps, bool (*holds_tensors)(const void*)) {
  MappedMemory memory;
  double* kind = &memory.anonymous;
  while (!smaps.empty()) {
    const std::string_view line = smaps.substr(0, smaps.find('\n'));
    smaps.remove_prefix(std::min(smaps.size(), line.size() + 1));
    if (is_mapping_header(line)) {
      kind = mapping_category(memory, line, holds_tensors);
    } else if (line.starts_with("Rss:")) {
      const std::string_view digits =
          line.substr(std::min(line.size(), line.find_first_not_of(' ', 4)));
      double kilobytes = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), kilobytes);
      *kind += kilobytes * kKilobyte;
    }
  }
  return memory;
}

ModelMemory model_memory(const ParamStore& weights, Optimizer* optimizer) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<double>(tensor.nbytes()) : 0.0;
  };
  ModelMemory memory;
  for (const ParamBucket& bucket : weights.buckets()) {
    memory.parameters += bytes(bucket.kept_value());
    memory.gradients += bytes(bucket.kept_grad());
  }
  memory.gradients += static_cast<double>(weights.num_grad_error_bytes());
  if (optimizer == nullptr) return memory;
  memory.main_parameters = static_cast<double>(optimizer->main_parameters().num_bytes());
  memory.optimizer_state = static_cast<double>(optimizer->num_state_bytes());
  return memory;
}

HostMemory host_memory() {
  const struct mallinfo2 heap = ::mallinfo2();
  return {.heap_in_use = static_cast<double>(heap.uordblks + heap.hblkhd),
          .workspaces = static_cast<double>(thread_workspace_bytes()),
          .anonymous = mapped_memory_now().anonymous};
}

MemoryTable cpu_memory_table(const MemoryReadings& readings) {
  const MappedMemory& mapped = readings.mapped;
  const HostMemory &before = readings.before_model, &now = readings.now;
  MemoryTable table = tensor_table(readings);
  table.communication = mapped.shared;
  table.workspaces = now.workspaces;
  table.host = other_tensors(readings) + now.heap_in_use - before.heap_in_use + now.workspaces +
               mapped.data_files;
  table.allocator_slack =
      mapped.tensors - readings.tensors.peak_bytes + std::max(0.0, mapped.heap - now.heap_in_use);
  table.libraries = mapped.program + before.heap_in_use + before.anonymous;
  return table;
}

MemoryTable gpu_memory_table(const MemoryReadings& readings) {
  MemoryTable table = tensor_table(readings);
  table.host = other_tensors(readings);
  table.allocator_slack = readings.tensors.reserved_bytes - readings.tensors.peak_bytes;
  return table;
}

MemoryTable measure_memory(const ParamStore& weights, Optimizer& optimizer,
                           RecordedActivations activations, const HostMemory& before_model) {
  const c10::Device device = weights.device();
  MemoryReadings readings{.model = model_memory(weights, &optimizer),
                          .tensors = tensor_memory(device),
                          .activations = activations.peak,
                          .before_model = before_model,
                          .now = host_memory(),
                          .mapped = mapped_memory_now(),
                          .units = static_cast<double>(weights.unit_bytes()),
                          .peak = process_status("VmHWM:")};
  if (!device.is_cpu()) readings.peak = process_memory(device).max_reserved_bytes;
  MemoryTable table = device.is_cpu() ? cpu_memory_table(readings) : gpu_memory_table(readings);
  table.units = std::move(activations.units);
  return table;
}

OffloadCounters offload_counters(const OffloadStore* activations, Optimizer& optimizer) {
  const auto& state = optimizer.main_parameters().offload();
  return {.activations = counters_of(activations),
          .state = counters_of(state ? state->options().store.get() : nullptr)};
}

void set_offloaded(MemoryTable& table, const OffloadCounters& before, const OffloadCounters& now) {
  table.offloaded_activations = since(before.activations, now.activations);
  table.offloaded_state = since(before.state, now.state);
}

std::vector<MemoryTable> gather_memory_tables(const Axis& world, c10::Device device,
                                              const MemoryTable& mine) {
  std::vector<MemoryTable> tables;
  for (const std::string& text : gather_strings({world, device}, memory_json(mine).dump()))
    tables.push_back(memory_table_of(text));
  return tables;
}

std::string memory_report(std::int64_t iterations, std::span<const MemoryTable> ranks,
                          const TheoreticalMemory& theory) {
  const auto largest = std::ranges::max_element(ranks, {}, &MemoryTable::peak) - ranks.begin();
  std::vector<MemoryColumn> columns{{"rank 0", &ranks[0]}};
  const std::string name =
      "rank " + std::to_string(largest) + ", the largest of " + std::to_string(ranks.size());
  if (largest > 0)
    columns.push_back({name, &ranks[static_cast<std::size_t>(largest)]});
  else if (ranks.size() > 1)
    columns[0].title = name;
  const std::string whose = largest == 0 && ranks.size() > 1 ? ", of " + name : "";
  return format("[Rank 0] (after %lld iterations) memory by part%s (MB):",
                static_cast<long long>(iterations), whose.c_str()) +
         memory_text(columns) +
         format(
             "\n    rank 0: tensors at the peak of a step %.2f; by Megatron's theory weights and "
             "optimizer %.2f, activations %.2f",
             tensor_bytes(ranks[0]) / kMegabyte, theory.weight_and_optimizer_bytes / kMegabyte,
             theory.activation_bytes / kMegabyte);
}

}  // namespace megatron
