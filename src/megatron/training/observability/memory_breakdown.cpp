#include "megatron/training/observability/memory_breakdown.h"

#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <sstream>

#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr double kKilobyte = 1024, kMegabyte = kKilobyte * 1024;
constexpr const char* kActivations = "activations (peak of a step)";
constexpr const char* kRemainder = "remainder";
constexpr const char* kModelParts[] = {"parameters", "main parameters", "gradients",
                                       "optimizer state"};

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

double* mapping_category(MappedMemory& memory, std::string_view head) {
  const std::string_view path = mapping_path(head);
  if (path == "[heap]") return &memory.heap;
  if (path.empty() || path.front() != '/') return &memory.anonymous;
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

std::vector<std::pair<std::string, double>> model_entries(const ModelMemory& model) {
  const double bytes[] = {model.parameters, model.main_parameters, model.gradients,
                          model.optimizer_state};
  std::vector<std::pair<std::string, double>> parts;
  for (std::size_t i = 0; i < std::size(bytes); ++i) parts.emplace_back(kModelParts[i], bytes[i]);
  return parts;
}

void add_tensors(MemoryBreakdown& result, const ModelMemory& model, const TensorMemory& tensors) {
  result.parts = model_entries(model);
  result.parts.emplace_back(kActivations, tensors.peak_bytes - tensors.allocated_bytes);
  result.parts.emplace_back("other tensors", tensors.allocated_bytes - model.total());
}

void add_remainder(MemoryBreakdown& result) {
  const auto add = [](double sum, const auto& part) { return sum + part.second; };
  result.parts.emplace_back(
      kRemainder,
      result.total - std::accumulate(result.parts.begin(), result.parts.end(), 0.0, add));
}

std::string table_line(const std::string& name, double bytes, const std::string& more) {
  std::string title = name + ' ';
  title.resize(std::max<std::size_t>(title.size(), 48), '.');
  return "\n    " + title + format(": %.2f", bytes / kMegabyte) + more;
}

}  // namespace

MappedMemory mapped_memory(std::string_view smaps) {
  MappedMemory memory;
  double* kind = &memory.anonymous;
  while (!smaps.empty()) {
    const std::string_view line = smaps.substr(0, smaps.find('\n'));
    smaps.remove_prefix(std::min(smaps.size(), line.size() + 1));
    if (is_mapping_header(line)) {
      kind = mapping_category(memory, line);
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
    memory.parameters += bytes(bucket.value);
    memory.gradients += bytes(bucket.grad);
  }
  memory.gradients += static_cast<double>(weights.num_grad_error_bytes());
  if (optimizer == nullptr) return memory;
  memory.main_parameters = static_cast<double>(optimizer->main_parameters().num_bytes());
  memory.optimizer_state = static_cast<double>(optimizer->num_state_bytes());
  return memory;
}

MemoryBreakdown cpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors,
                                     const MappedMemory& mapped, double heap_bytes) {
  MemoryBreakdown result{.parts = {}, .total = mapped.total()};
  add_tensors(result, model, tensors);
  result.parts.emplace_back("heap without tensors", heap_bytes);
  result.parts.emplace_back(
      "freed, kept by the allocator",
      std::max(0.0, mapped.heap - heap_bytes) + tensors.reserved_bytes - tensors.peak_bytes);
  result.parts.emplace_back("mapped data files", mapped.data_files);
  result.parts.emplace_back("program and libraries", mapped.program);
  add_remainder(result);
  return result;
}

MemoryBreakdown gpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors) {
  MemoryBreakdown result{.parts = {}, .total = tensors.reserved_bytes};
  add_tensors(result, model, tensors);
  add_remainder(result);
  return result;
}

MemoryBreakdown measure_memory(const ParamStore& weights, Optimizer& optimizer) {
  const c10::Device device = weights.device();
  const ModelMemory model = model_memory(weights, &optimizer);
  const TensorMemory tensors = tensor_memory(device);
  if (!device.is_cpu()) return gpu_memory_breakdown(model, tensors);
  const struct mallinfo2 heap = ::mallinfo2();
  return cpu_memory_breakdown(model, tensors, mapped_memory(whole_file("/proc/self/smaps")),
                              static_cast<double>(heap.uordblks + heap.hblkhd));
}

std::string memory_table(std::int64_t iterations, const MemoryBreakdown& measured,
                         const TheoreticalMemory& theory) {
  std::string text = format("[Rank 0] (after %lld iterations) memory by part (MB):",
                            static_cast<long long>(iterations));
  double model = 0;
  for (const auto& [name, bytes] : measured.parts) {
    const bool is_model =
        std::find(std::begin(kModelParts), std::end(kModelParts), name) != std::end(kModelParts);
    if (is_model) model += bytes;
    text += table_line(
        name, bytes,
        name == kActivations ? format(" (theory: %.2f)", theory.activation_bytes / kMegabyte) : "");
  }
  text += table_line("sum", measured.total, "");
  return text +
         table_line("of it weights, gradients and optimizer", model,
                    format(" (theory: %.2f)", theory.weight_and_optimizer_bytes / kMegabyte));
}

}  // namespace megatron
