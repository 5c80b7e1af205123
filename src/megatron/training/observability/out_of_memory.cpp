#include "megatron/training/observability/out_of_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "megatron/config/byte_count.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/memory_remedies.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

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
    if (bytes > 0) text += (text.empty() ? "" : ", ") + name + ' ' + byte_size_text(bytes);
  }
  return text.empty() ? "" : "\n  this rank holds: " + text;
}

std::string theoretical_memory_text(const TrainingPlan& plan, const StepBatch& batch) {
  const std::int64_t num_microbatches = std::max<std::int64_t>(batch.num_microbatches, 1);
  const TheoreticalMemory theory = theoretical_memory(
      plan.dimensions, run_memory_layout(plan.settings, plan.rank, num_microbatches));
  return "\n  theoretical memory of a rank: weights and optimizer " +
         byte_size_text(theory.weight_and_optimizer_bytes) + ", activations " +
         byte_size_text(theory.activation_bytes);
}

/// Returns the cheapest flags that make the run need less memory, one per line. `available_bytes`
/// is what tensors held when memory ran out.
std::string remedies_of(const TrainingPlan& plan, double available_bytes) {
  const std::int64_t ranks = plan.rank.world.size;
  const std::string text =
      remedies_text(memory_remedies(plan.settings, *plan.family, ranks, available_bytes), ranks);
  return text.empty() ? "\n  fix: more memory, or a shorter --seq-length"
                      : "\n  fix, the cheapest first, with predicted effects:" + text;
}

/// As remedies_of(), when so little memory is left that even a prediction may fail.
std::string remedies_if_possible(const TrainingPlan& plan, double available_bytes) {
  try {
    return remedies_of(plan, available_bytes);
  } catch (const std::bad_alloc&) {
    return "\n  fix: ask `megatron plan --memory` with the flags of this run what else it needs";
  }
}

[[noreturn]] void fail(const TrainingPlan& plan, const TrainingState& state,
                       const std::string& asked) {
  const c10::Device device = plan.rank.device;
  throw OutOfMemoryError(first_line(asked) + memory_in_use_text(state, device) +
                         theoretical_memory_text(plan, state.batch) + "\n  " +
                         limits_text(memory_limits(device)) +
                         remedies_if_possible(plan, tensor_memory(device).peak_bytes));
}

}  // namespace

bool is_out_of_memory_message(const std::string& message) {
  constexpr std::array<std::string_view, 4> kWords{
      "out of memory", "not enough memory", "can't allocate memory", "failed to allocate memory"};
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return message.find(words) != std::string::npos; });
}

MemoryLimits memory_limits(c10::Device device) {
  MemoryLimits limits = host_memory_limits();
  if (device.is_cpu()) return limits;
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  limits.device = static_cast<double>(total);
  limits.device_free = static_cast<double>(free);
  return limits;
}

std::string limits_text(const MemoryLimits& limits) {
  std::string text = "limits: ";
  if (limits.device > 0) text += "GPU " + byte_size_text(limits.device) + ", ";
  const auto add_ulimit = [&](const char* name, double limit, const char* flag, double reserved) {
    if (limit > 0)
      text += name + byte_size_text(limit) + " (ulimit " + flag + "; reserved " +
              byte_size_text(reserved) + ", resident " + byte_size_text(limits.resident) + "), ";
  };
  add_ulimit("address space ", limits.address_space, "-v", limits.reserved_addresses);
  add_ulimit("data ", limits.data, "-d", limits.reserved_data);
  if (limits.cgroup > 0) text += "control group " + byte_size_text(limits.cgroup) + ", ";
  return text + "machine " + byte_size_text(limits.machine) + " of which " +
         byte_size_text(limits.available) + " are available";
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
