#include "megatron/training/loop/out_of_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/observability/process_memory.h"

namespace megatron {
namespace {

constexpr double kMebibyte = 1 << 20, kGibibyte = 1 << 30;

std::string size_text(double bytes) {
  return bytes >= kGibibyte ? format("%.2f GiB", bytes / kGibibyte)
                            : format("%.1f MiB", bytes / kMebibyte);
}

double soft_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  const bool is_bound = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_bound ? static_cast<double>(limit.rlim_cur) : 0;
}

/// Reads a limit from a control group file. Returns 0 for "max", for a value that means no limit,
/// and when the file is missing.
double read_cgroup_limit(const fs::path& file) {
  constexpr double kNoLimit = 1e18;
  std::ifstream in(file);
  double bytes = 0;
  return in >> bytes && bytes < kNoLimit ? bytes : 0;
}

/// Returns the smallest limit of the process's control group and its parents (cgroup v2, and the
/// memory controller of v1).
double cgroup_limit() {
  std::ifstream groups("/proc/self/cgroup");
  double least = 0;
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v1 = controllers.find("memory") != std::string::npos;
    if (!is_v1 && !controllers.empty()) continue;
    const fs::path root = is_v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      const double bytes =
          read_cgroup_limit(root / group / (is_v1 ? "memory.limit_in_bytes" : "memory.max"));
      if (bytes > 0) least = least > 0 ? std::min(least, bytes) : bytes;
      if (group.empty()) break;
    }
  }
  return least;
}

/// Removes the allocator settings from LibTorch's message.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Reports the peak, because the failed step has already freed its activations.
std::string memory_in_use_text(const TrainingState& state, c10::Device device) {
  std::vector<std::pair<std::string, double>> parts;
  if (state.weights) {
    const ModelMemory model = model_memory(*state.weights, state.optimizer.get());
    const double tensors = tensor_memory(device).peak_bytes;
    parts = {{"weights", model.parameters},
             {"main weights", model.main_parameters},
             {"gradients", model.gradients},
             {"optimizer state", model.optimizer_state},
             {"activations and other tensors at the peak", tensors - model.total()}};
  } else {
    parts = {{"tensors at the peak", tensor_memory(device).peak_bytes}};
  }
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + name + ' ' + size_text(bytes);
  }
  return text.empty() ? "" : "\n  this rank holds: " + text;
}

std::string theoretical_memory_text(const TrainingPlan& plan, const StepBatch& batch) {
  const std::int64_t num_microbatches = std::max<std::int64_t>(batch.num_microbatches, 1);
  const TheoreticalMemory theory = theoretical_memory(
      plan.dimensions, run_memory_layout(plan.settings, plan.rank, num_microbatches));
  return "\n  theoretical memory of a rank: weights and optimizer " +
         size_text(theory.weight_and_optimizer_bytes) + ", activations " +
         size_text(theory.activation_bytes);
}

/// Returns options that reduce memory and are not on yet, largest saving first.
std::string remedies(const TrainingPlan& plan) {
  const Settings& settings = plan.settings;
  std::vector<std::string> all;
  if (settings.training.micro_batch_size > 1)
    all.push_back("a smaller --micro-batch-size (now " +
                  std::to_string(settings.training.micro_batch_size) + ')');
  if (!settings.training.bf16 && !settings.training.fp16) all.emplace_back("--bf16");
  if (plan.rank.dp.size > 1 && !settings.parallel.use_distributed_optimizer)
    all.emplace_back("--use-distributed-optimizer");
  all.push_back("more ranks with a larger --tensor-model-parallel-size (now " +
                std::to_string(settings.parallel.tensor_model_parallel_size) +
                ") or --pipeline-model-parallel-size");
  all.push_back("a shorter --seq-length (now " + std::to_string(settings.training.seq_length) +
                ')');
  if (all.size() > 3) all.resize(3);
  std::string text;
  for (const std::string& remedy : all) text += (text.empty() ? "" : "; ") + remedy;
  return "\n  fix: " + text + "; or more memory";
}

[[noreturn]] void fail(const TrainingPlan& plan, const TrainingState& state,
                       const std::string& asked) {
  const c10::Device device = plan.rank.device;
  throw OutOfMemoryError(first_line(asked) + memory_in_use_text(state, device) +
                         theoretical_memory_text(plan, state.batch) + "\n  " +
                         limits_text(memory_limits(device)) + remedies(plan));
}

}  // namespace

bool is_out_of_memory_message(const std::string& message) {
  constexpr std::array<std::string_view, 4> kWords{
      "out of memory", "not enough memory", "can't allocate memory", "failed to allocate memory"};
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return message.find(words) != std::string::npos; });
}

MemoryLimits memory_limits(c10::Device device) {
  MemoryLimits limits{.address_space = soft_limit(RLIMIT_AS),
                      .data = soft_limit(RLIMIT_DATA),
                      .cgroup = cgroup_limit()};
  limits.machine = machine_memory("MemTotal:");
  limits.available = machine_memory("MemAvailable:");
  if (!device.is_cpu())
    limits.device = static_cast<double>(
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
  return limits;
}

std::string limits_text(const MemoryLimits& limits) {
  std::string text = "limits: ";
  if (limits.device > 0) text += "GPU " + size_text(limits.device) + ", ";
  if (limits.address_space > 0)
    text += "address space " + size_text(limits.address_space) + " (ulimit -v), ";
  if (limits.data > 0) text += "data " + size_text(limits.data) + " (ulimit -d), ";
  if (limits.cgroup > 0) text += "control group " + size_text(limits.cgroup) + ", ";
  return text + "machine " + size_text(limits.machine) + " of which " +
         size_text(limits.available) + " are available";
}

void rethrow_with_memory_report(const TrainingPlan& plan, const TrainingState& state) {
  try {
    throw;
  } catch (const OutOfMemoryError& error) {
    fail(plan, state, error.what());
  } catch (const std::bad_alloc&) {
    fail(plan, state, "the C++ heap could not grow");
  } catch (const c10::Error& error) {  // excludes errors that quote another rank's failure
    if (!is_out_of_memory_message(error.what_without_backtrace())) throw;
    fail(plan, state, error.what_without_backtrace());
  }
}

}  // namespace megatron
