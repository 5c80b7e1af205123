#include "megatron/planner/memory_remedies.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/world_rules.h"
#include "megatron/models/model_cost.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/run_costs.h"

namespace megatron {
namespace {

using Parallel = ParallelConfig;
using Training = TrainingConfig;

/// Settings and their values.
using Assignments = std::vector<std::pair<Setting, std::vector<std::string>>>;

struct Candidate {
  Assignments values;
  double more_time = 0;
  bool changes_numbers = false;
  bool waits_for_disk = false;
  std::int64_t rank_factor = 1;  ///< by which the ranks that share a model grow
};

/// Shares of a step's FLOPs that one forward pass of a part costs.
struct ForwardShares {
  double layers = 0, mlp = 0;
};

/// A step computes forward once and backward twice as much.
ForwardShares forward_shares(const Settings& settings) {
  const ModelDimensions all = model_dimensions(*settings.model, padded_vocab_size(settings));
  ModelDimensions layers = all, attention = all;
  layers.padded_vocab_size = attention.padded_vocab_size = 0;
  attention.ffn_hidden_size = attention.moe_ffn_hidden_size = 0;
  attention.moe_shared_expert_ffn_hidden_size = 0;
  const auto flops = [&](const ModelDimensions& dimensions) {
    return num_floating_point_operations(dimensions, std::int64_t{1},
                                         settings.training->seq_length);
  };
  const double whole = 3 * flops(all);
  return {.layers = flops(layers) / whole, .mlp = (flops(layers) - flops(attention)) / whole};
}

std::string text(std::int64_t value) { return std::to_string(value); }

/// Modules that selective recomputation of a model may name, of which backward needs GEMMs again.
std::vector<std::string> feed_forward_modules(const TransformerConfig& model) {
  std::vector<std::string> modules;
  if (has_feed_forward(model, FeedForwardKind::mlp)) modules.emplace_back("mlp");
  if (has_feed_forward(model, FeedForwardKind::experts)) modules.emplace_back("moe");
  return modules;
}

void add_recompute(std::vector<Candidate>& all, const Settings& settings) {
  if (!settings.memory->recompute.recompute_granularity.empty()) return;
  const ForwardShares shares = forward_shares(settings);
  std::vector<std::string> modules{"layernorm"};
  const auto selective = [&](double more_time) {
    all.push_back({.values = {{&RecomputeConfig::recompute_granularity, {"selective"}},
                              {&RecomputeConfig::recompute_modules, modules}},
                   .more_time = more_time});
  };
  selective(0);
  const auto blocks = feed_forward_modules(*settings.model);
  modules.insert(modules.end(), blocks.begin(), blocks.end());
  selective(shares.mlp);
  all.push_back({.values = {{&RecomputeConfig::recompute_granularity, {"full"}},
                            {&RecomputeConfig::recompute_method, {"uniform"}},
                            {&RecomputeConfig::recompute_num_layers, {"1"}}},
                 .more_time = shares.layers});
}

void add_data_parallel(std::vector<Candidate>& all, const ParallelConfig& parallel) {
  if (!parallel.use_distributed_optimizer)
    all.push_back({.values = {{&Parallel::use_distributed_optimizer, {"true"}}}});
  for (const char* stage : {"2", "3"})
    all.push_back({.values = {{&Parallel::zero_stage, {stage}}}});
}

void add_parallel(std::vector<Candidate>& all, const ParallelConfig& parallel) {
  const auto twice = [&](const Setting& setting, std::int64_t size, Assignments more = {}) {
    more.insert(more.begin(), {setting, {text(2 * size)}});
    all.push_back({.values = std::move(more), .rank_factor = 2});
  };
  twice(&Parallel::tensor_model_parallel_size, parallel.tensor_model_parallel_size,
        {{&Parallel::sequence_parallel, {"true"}}});
  twice(&Parallel::pipeline_model_parallel_size, parallel.pipeline_model_parallel_size);
  twice(&Parallel::context_parallel_size, parallel.context_parallel_size);
}

void add_optimizer_state(std::vector<Candidate>& all, const Settings& settings) {
  const OffloadConfig& offload = settings.memory->offload;
  Assignments values{{&OffloadConfig::optimizer_cpu_offload, {"true"}}};
  if (settings.parallel->device != "cuda")
    values.push_back({&OffloadConfig::offload_folder,
                      {offload.offload_folder.empty() ? "DIR" : offload.offload_folder}});
  all.push_back({.values = std::move(values), .waits_for_disk = true});
  for (const char* dtype : {"bf16", "int8"})
    all.push_back({.values = {{&OptimizerConfig::use_precision_aware_optimizer, {"true"}},
                              {&OptimizerConfig::exp_avg_dtype, {dtype}},
                              {&OptimizerConfig::exp_avg_sq_dtype, {dtype}}},
                   .changes_numbers = true});
}

std::vector<Candidate> candidates(const Settings& settings) {
  std::vector<Candidate> all;
  const TrainingConfig& training = *settings.training;
  add_recompute(all, settings);
  const auto micro_batch = [&](std::int64_t size) {
    all.push_back({.values = {{&Training::micro_batch_size, {text(size)}}}});
  };
  if (training.micro_batch_size > 1) micro_batch(training.micro_batch_size / 2);
  if (training.micro_batch_size > 3) micro_batch(1);
  add_data_parallel(all, *settings.parallel);
  add_optimizer_state(all, settings);
  if (!training.bf16 && !training.fp16)
    all.push_back({.values = {{&Training::bf16, {"true"}}}, .changes_numbers = true});
  add_parallel(all, *settings.parallel);
  return all;
}

/// Sets the values. Returns the flags, or nothing if a value is invalid or if all are set already.
std::optional<std::string> apply(const Assignments& values, Settings& settings) {
  std::string flags;
  bool has_changed = false;
  for (const auto& [setting, words] : values) {
    const Field& field = setting.field();
    try {
      has_changed = has_changed || field.get(&settings) != words;
      assign(field, &settings, words);
    } catch (const FieldError&) {
      return std::nullopt;
    }
    flags += (flags.empty() ? "" : " ") + field.flag();
    if (!field.is_switch()) flags += ' ' + join_values(words);
  }
  return has_changed ? std::optional(flags) : std::nullopt;
}

/// Predicts the memory of a run with the values of a candidate. Returns nothing if they do not fit
/// the run.
std::optional<MemoryRemedy> evaluate(const Candidate& candidate, Settings settings,
                                     const ModelFamily& family, std::int64_t world_size) {
  const std::int64_t replicas = data_parallel_size(settings, world_size);
  const auto flags = apply(candidate.values, settings);
  if (!flags) return std::nullopt;
  const bool needs_ranks = replicas % candidate.rank_factor != 0;
  MemoryRemedy remedy{.flags = *flags,
                      .world_size = needs_ranks ? world_size * candidate.rank_factor : world_size,
                      .more_time = candidate.more_time,
                      .changes_numbers = candidate.changes_numbers,
                      .waits_for_disk = candidate.waits_for_disk};
  const MeshSizes sizes = mesh_sizes(*settings.parallel);
  if (!check_mesh_sizes(sizes, remedy.world_size).empty()) return std::nullopt;
  resolve(settings, data_parallel_size(sizes, remedy.world_size));
  Problems problems = check_layout(settings, remedy.world_size);
  problems.add(evaluate(precision_rules(), settings, {}));
  if (!problems.empty()) return std::nullopt;
  LayerTraces traces(family);
  remedy.predicted_bytes = evaluate_layout(settings, traces, remedy.world_size).memory.total();
  return remedy;
}

}  // namespace

std::vector<MemoryRemedy> memory_remedies(const Settings& settings, const ModelFamily& family,
                                          std::int64_t world_size, double available_bytes) {
  LayerTraces traces(family);
  const double now = evaluate_layout(settings, traces, world_size).memory.total();
  std::vector<MemoryRemedy> remedies;
  for (const Candidate& candidate : candidates(settings)) {
    auto remedy = evaluate(candidate, settings, family, world_size);
    if (!remedy || remedy->predicted_bytes >= now) continue;
    remedy->saved_bytes = now - remedy->predicted_bytes;
    remedy->fits = remedy->predicted_bytes <= available_bytes;
    remedies.push_back(*std::move(remedy));
  }
  std::ranges::stable_sort(remedies, {}, [&](const MemoryRemedy& remedy) {
    const bool needs_ranks = remedy.world_size > world_size;
    return std::tuple(!remedy.fits, needs_ranks, remedy.fits ? 0 : -remedy.saved_bytes,
                      remedy.changes_numbers, remedy.waits_for_disk, remedy.more_time,
                      -remedy.saved_bytes);
  });
  return remedies;
}

std::string describe(const MemoryRemedy& remedy, std::int64_t world_size) {
  std::string text = remedy.flags + ": " + byte_size_text(remedy.saved_bytes) + " less (" +
                     byte_size_text(remedy.predicted_bytes) + " of tensors)";
  if (remedy.world_size > world_size)
    text += ", on " + std::to_string(remedy.world_size) + " ranks";
  if (remedy.more_time > 0) {
    text += format(", about %.0f %% more time", 100 * remedy.more_time);
  } else if (remedy.world_size == world_size) {
    text += ", no more FLOPs";
  }
  if (remedy.waits_for_disk) text += ", and the copies of each update";
  return remedy.changes_numbers ? text + ", and other roundings" : text;
}

std::string remedies_text(const std::vector<MemoryRemedy>& remedies, std::int64_t world_size) {
  constexpr std::size_t kNumShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNumShown, remedies.size()); ++i)
    text += "\n    " + describe(remedies[i], world_size) +
            (remedies[i].fits ? "" : ", which is not enough alone");
  return text;
}

}  // namespace megatron
