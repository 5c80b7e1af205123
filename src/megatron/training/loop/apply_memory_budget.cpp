// Implements the step of set_up() that plans activations for --memory-budget.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/base/memory_limits.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/memory_budget.h"
#include "megatron/planner/memory_remedies.h"
#include "megatron/training/loop/setup.h"
#include "megatron/training/observability/out_of_memory.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/open_offload_store.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

/// The share of the free memory that an automatic budget takes. The rest is for what other programs
/// do meanwhile and, on a GPU, for the context and libraries.
constexpr double kShareOfFreeMemory = 0.9;

/// Returns the memory that this process may hold: what it holds now and its share of what is free.
double free_budget(c10::Device device, std::int64_t ranks_on_host) {
  const MemoryLimits limits = memory_limits(device);
  if (limits.device > 0)
    return kShareOfFreeMemory * (process_memory(device).reserved_bytes + limits.device_free);
  return kShareOfFreeMemory * attainable_memory(limits, ranks_on_host);
}

/// Returns the budget of this rank: --memory-budget, but not more than its limits let it use.
double own_budget(const MemoryConfig& memory, const Rank& rank, std::int64_t ranks_on_host) {
  if (memory.memory_budget == "auto") return free_budget(rank.device, ranks_on_host);
  const double budget = byte_count(memory.memory_budget).value();
  if (!rank.device.is_cpu()) return budget;
  return std::min(budget, usable_under_ulimits(memory_limits(rank.device)).value_or(budget));
}

/// Returns this rank's part of what is free in --offload-folder; infinite without one.
double offload_space(const MemoryConfig& memory, std::int64_t ranks_on_host) {
  std::error_code error;
  const auto space = std::filesystem::space(memory.offload.offload_folder, error);
  if (memory.offload.offload_folder.empty() || error)
    return std::numeric_limits<double>::infinity();
  return static_cast<double>(space.available) / static_cast<double>(ranks_on_host);
}

struct Limits {
  double memory = 0, offload_space = 0;
};

/// Returns the limits of each rank. Ranks of one job plan for the smallest machine.
Limits common_limits(const MemoryConfig& memory, const Rank& rank, std::int64_t ranks_on_host) {
  Limits least{own_budget(memory, rank, ranks_on_host), offload_space(memory, ranks_on_host)};
  for (const std::vector<double>& other :
       all_gather_numbers({rank.world, rank.device},
                          std::vector<double>{least.memory, least.offload_space}, "memory budget"))
    least = {std::min(least.memory, other[0]), std::min(least.offload_space, other[1])};
  return least;
}

/// Returns whether ranks plan for less than --memory-budget says.
bool is_bound_by_ulimits(const MemoryConfig& memory, double budget) {
  return memory.memory_budget != "auto" && budget < byte_count(memory.memory_budget).value();
}

/// Returns what the process holds besides what the planner predicts: its code and data, and the
/// parts of the libraries that the first step will read.
double held_bytes(c10::Device device) {
  constexpr double kReadLater = 24 << 20;
  return device.is_cpu() ? process_status("VmRSS:") + kReadLater : 0;
}

struct SavedPlan {
  std::string activation_plan;
  std::int64_t micro_batch_size = 1;
};

/// Returns the settings that a plan depends on.
auto planned_settings(const Settings& s) {
  const ParallelConfig& p = *s.parallel;
  const TrainingConfig& t = *s.training;
  const OffloadConfig& offload = s.memory->offload;
  const OptimizerConfig& o = *s.optimizer;
  return std::tuple(
      s.memory->memory_budget, offload.offload_folder.empty(), p.tensor_model_parallel_size,
      p.pipeline_model_parallel_size, p.context_parallel_size, p.expert_model_parallel_size,
      p.sequence_parallel, zero_stage(p), p.num_distributed_optimizer_instances,
      t.global_batch_size, t.seq_length, t.bf16, t.fp16, s.model->num_layers,
      offload.optimizer_cpu_offload, offload.optimizer_offload_fraction,
      offload.cpu_offloading_weights, o.optimizer, o.exp_avg_dtype, o.exp_avg_sq_dtype,
      o.main_grads_dtype, o.main_params_dtype, o.main_grads_error_feedback);
}

/// Returns the plan that the saved run had, if its budget and all settings the plan depends on are
/// this run's.
std::optional<SavedPlan> saved_plan(const Settings& settings, const Rank& rank,
                                    const std::optional<CheckpointSource>& source) {
  if (!source || source->is_release || settings.checkpoint->finetune || !source->manifest)
    return std::nullopt;
  Settings saved = settings;
  read_saved_settings(*source->manifest->settings, saved);
  const bool same_size = settings.memory->chooses_micro_batch_size ||
                         saved.training->micro_batch_size == settings.training->micro_batch_size;
  if (saved.memory->activation_plan.empty() || !same_size ||
      saved.memory->planned_world_size != rank.world.size ||
      planned_settings(saved) != planned_settings(settings))
    return std::nullopt;
  return SavedPlan{saved.memory->activation_plan, saved.training->micro_batch_size};
}

void set_plan(Settings& settings, const Rank& rank, std::int64_t micro_batch_size,
              std::string activation_plan) {
  settings.training->micro_batch_size = micro_batch_size;
  settings.memory->activation_plan = std::move(activation_plan);
  settings.memory->planned_world_size = rank.world.size;
}

}  // namespace

void apply_memory_budget(Settings& settings, const ModelFamily& family, const Rank& rank,
                         const BudgetContext& context, std::ostream& out) {
  MemoryConfig& memory = *settings.memory;
  if (memory.memory_budget.empty() || settings.training->skip_train) return;
  std::unique_ptr<OffloadStore> store;
  if (!memory.offload.offload_folder.empty() || rank.device.is_cuda()) {
    store = open_offload_store({.config = memory.offload, .flag = "--memory-budget"}, rank.device,
                               context.warnings, out);
  }
  const auto [budget, space] = common_limits(memory, rank, context.ranks_on_host);
  const BudgetRequest request{.settings = settings,
                              .family = family,
                              .rank = rank,
                              .layout = context.layout,
                              .budget_bytes = budget,
                              .is_bound_by_ulimits = is_bound_by_ulimits(memory, budget),
                              .held_bytes = held_bytes(rank.device),
                              .offload_store = store.get(),
                              .offload_space_bytes = space};
  if (const auto saved = saved_plan(settings, rank, context.source)) {
    const std::string misfit = misfit_of_plan(
        request, saved->micro_batch_size, parse_activation_plan(saved->activation_plan).value());
    if (misfit.empty()) {
      out << "memory budget: the plan of the checkpoint, micro-batch " << saved->micro_batch_size
          << ", " << saved->activation_plan << std::endl;
      set_plan(settings, rank, saved->micro_batch_size, saved->activation_plan);
      return;
    }
    out << "memory budget: the plan of the checkpoint " << misfit << "; it is made again"
        << std::endl;
  }
  out << "planning for a memory budget of " << byte_size_text(budget)
      << (request.is_bound_by_ulimits
              ? ", which is what ulimit -v or -d leaves after stacks and unread code"
              : "")
      << " ..." << std::endl;
  const BudgetPlan plan = plan_memory_budget(request);
  set_plan(settings, rank, plan.micro_batch_size, activation_plan_text(plan.layers));
  out << plan.table << std::endl;
}

}  // namespace megatron
