#include "megatron/planner/plan_layouts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "megatron/base/format.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/context_sizes.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/world_rules.h"
#include "megatron/config/zero_stage.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"
#include "megatron/planner/layer_trace.h"
#include "megatron/planner/rank_memory.h"

namespace megatron {
namespace {

/// The longest sequences that published layouts leave whole where memory suffices.
constexpr std::int64_t kShortSequence = 32768;

/// Returns the divisors of `number`, ascending.
std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t size = 1; size <= number; ++size) {
    if (number % size == 0) divisors.push_back(size);
  }
  return divisors;
}

/// Returns the bytes that are gathered and reduced in a step when gradients or weights are sharded:
/// the gradients of each microbatch, and the weights once, or for its forward and its backward.
double sharded_bytes(const Settings& settings, double weights, std::int64_t num_microbatches) {
  const TrainingConfig& training = *settings.training;
  const bool has_bf16_gradients =
      training.grad_reduce_in_bf16 || settings.optimizer->main_grads_dtype == "bf16";
  const double of_weights = weights * (training.bf16 || training.fp16 ? 2 : 4),
               of_gradients = weights * (has_bf16_gradients ? 2 : 4),
               microbatches = static_cast<double>(num_microbatches);
  return zero_stage(*settings.parallel) == 3 ? microbatches * (of_gradients + 2 * of_weights)
                                             : microbatches * of_gradients + of_weights;
}

/// Adds the bytes of gradients and weights that a rank sends over the ranks that hold the same
/// weights: a ring all-reduce of the gradients, or with the distributed optimizer a reduce-scatter
/// of them and an all-gather of the weights.
void add_data_parallel_bytes(const Settings& settings, LayoutCandidate& layout) {
  const RankMemory& memory = layout.memory;
  const double weights = memory.num_dense_weights + memory.num_expert_weights;
  if (weights == 0) return;
  const auto share = [](std::int64_t ranks) {
    return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  };
  const double sent =
      zero_stage(*settings.parallel) > 1
          ? sharded_bytes(settings, weights, layout.num_microbatches)
          : memory.gradients + (settings.parallel->use_distributed_optimizer ? memory.parameters
                                                                             : memory.gradients);
  layout.communication.data =
      sent * (memory.num_dense_weights * share(layout.data_parallel * layout.sizes.cp)) / weights;
  layout.communication.expert_data =
      sent * (memory.num_expert_weights * share(layout.expert_data_parallel)) / weights;
}

/// Returns the bytes that leave the host of a rank, on average over the groups of rank 0.
double bytes_between_hosts(const CommunicationVolume& sent, const Settings& settings,
                           const Mesh& mesh, std::int64_t gpus_per_host) {
  const auto share = [&](const char* axis, bool all_to_all = false) {
    return share_between_hosts(mesh.group(0, axis), gpus_per_host, all_to_all);
  };
  const bool by_heads = settings.parallel->cp_comm_type.front() == CpCommType::a2a,
             by_rows = settings.model->moe.token_dispatcher_type != TokenDispatcherType::allgather;
  return sent.tensor * share("tp") + sent.context * share("cp", by_heads) +
         sent.pipeline * share("pp") + sent.expert * share("etp-ep", by_rows) +
         sent.data * share("dp-cp") + sent.expert_data * share("edp");
}

/// What decides between layouts that fit, most important first. Of the bytes between hosts it is
/// the logarithm to base 4 of their ratio to the least, rounded down.
using LayoutOrder = std::array<double, 4>;

/// Why a layout comes after the best, by the first number in which it differs.
constexpr std::array<const char*, 5> kReasons{"short sequences need no cp", "more off-host",
                                              "larger bubble", "more in-host",
                                              "best of those that fit"};

/// Returns settings with which each rank holds all states of its weights in memory.
Settings without_sharding(Settings settings) {
  ParallelConfig& parallel = *settings.parallel;
  parallel.use_distributed_optimizer = parallel.use_megatron_fsdp = parallel.use_torch_fsdp2 =
      false;
  parallel.num_distributed_optimizer_instances = 1;
  parallel.data_parallel_sharding_strategy.clear();
  parallel.zero_stage = 0;
  settings.memory->offload = {};
  return settings;
}

}  // namespace

Settings settings_with(const Settings& settings, const MeshSizes& sizes, std::int64_t world_size) {
  Settings result = settings;
  ParallelConfig& parallel = *result.parallel;
  parallel.tensor_model_parallel_size = sizes.tp;
  parallel.context_parallel_size = sizes.cp;
  parallel.pipeline_model_parallel_size = sizes.pp;
  parallel.expert_model_parallel_size = sizes.ep;
  parallel.expert_tensor_parallel_size = sizes.etp;
  resolve(result, std::max<std::int64_t>(1, data_parallel_size(sizes, world_size)));
  return result;
}

Problems check_layout(const Settings& settings, std::int64_t world_size) {
  Problems problems = check_world(settings, world_size);
  for (const auto* rules : {&parallel_rules(), &pipeline_rules()})
    problems.add(evaluate(*rules, settings, {}));
  problems.add(validate_model(settings));
  return problems;
}

std::vector<MeshSizes> considered_sizes(const Settings& settings, const LayoutRequest& request) {
  using Sizes = std::vector<std::int64_t>;
  const MeshSizes given = mesh_sizes(*settings.parallel);
  const std::int64_t world = request.world_size, experts = settings.model->moe.num_experts;
  using Parallel = ParallelConfig;
  const auto choose = [&](const Setting& setting, std::int64_t value, const Sizes& free) {
    return request.fixed.contains(setting.name()) ? Sizes{value} : free;
  };
  const Sizes tps = choose(&Parallel::tensor_model_parallel_size, given.tp,
                           divisors_of(std::gcd(settings.model->num_attention_heads, world))),
              cps = choose(&Parallel::context_parallel_size, given.cp,
                           settings.model->decoder_num_layers > 0  // cross attention has no cp
                               ? Sizes{1}
                               : context_sizes(settings.training->seq_length, world)),
              pps = choose(&Parallel::pipeline_model_parallel_size, given.pp, divisors_of(world)),
              eps = choose(&Parallel::expert_model_parallel_size, given.ep,
                           experts > 0 ? divisors_of(std::gcd(experts, world)) : Sizes{1});
  const auto is_considered = [&](std::int64_t tp, std::int64_t cp) {
    return tp * cp == tps.front() * cps.front() || world <= request.gpus_per_host ||
           request.gpus_per_host % (tp * cp) == 0;
  };
  std::vector<MeshSizes> all;
  for (const std::int64_t tp : tps) {
    const Sizes etps = choose(&Parallel::expert_tensor_parallel_size, given.expert_tp(),
                              experts > 0 ? divisors_of(tp) : Sizes{tp});
    for (const std::int64_t cp : cps) {
      if (!is_considered(tp, cp)) continue;
      for (const std::int64_t pp : pps) {
        for (const std::int64_t ep : eps) {
          for (const std::int64_t etp : etps) {
            MeshSizes sizes = given;
            sizes.tp = tp;
            sizes.cp = cp;
            sizes.pp = pp;
            sizes.ep = ep;
            sizes.etp = etp == tp ? std::nullopt : std::optional(etp);
            all.push_back(sizes);
          }
        }
      }
    }
  }
  return all;
}

std::vector<Rank> pipeline_ranks(const Settings& settings, std::int64_t world_size) {
  const Mesh mesh(mesh_sizes(*settings.parallel), world_size);
  std::vector<Rank> ranks;
  for (const std::int64_t index : mesh.group(0, "pp"))
    ranks.push_back(make_rank(mesh, index,
                              {.sequence_parallel = settings.parallel->sequence_parallel,
                               .cp_a2a_size = cp_a2a_size(*settings.parallel)}));
  return ranks;
}

std::int64_t first_num_microbatches(const Settings& settings, std::int64_t world_size) {
  return NumMicrobatchesCalculator(*settings.training, data_parallel_size(settings, world_size))
      .at(0)
      .num_microbatches;
}

LayoutCandidate evaluate_layout(const Settings& settings, LayerTraces& traces,
                                std::int64_t world_size, std::int64_t gpus_per_host) {
  const Mesh mesh(mesh_sizes(*settings.parallel), world_size);
  const PipelineLayout layout = pipeline_layout(*settings.parallel, *settings.model);
  LayoutCandidate candidate{.sizes = mesh.sizes(),
                            .data_parallel = mesh.size("dp"),
                            .expert_data_parallel = mesh.size("edp"),
                            .sequence_parallel = settings.parallel->sequence_parallel,
                            .num_microbatches = first_num_microbatches(settings, world_size),
                            .memory = {},
                            .communication = {}};
  const auto waits = static_cast<double>(layout.num_ranks - 1);
  candidate.bubble =
      waits / (static_cast<double>(layout.num_chunks * candidate.num_microbatches) + waits);
  for (const Rank& rank : pipeline_ranks(settings, world_size)) {
    const RankMemory memory =
        predict_rank_memory(settings, traces, rank, layout, candidate.num_microbatches);
    if (memory.total() <= candidate.memory.total()) continue;
    candidate.memory = memory;
    candidate.communication = activation_volume(settings, rank, layers_of(layout, rank.pp.rank),
                                                activation_plan(*settings.memory, layout),
                                                candidate.num_microbatches, traces);
  }
  add_data_parallel_bytes(settings, candidate);
  candidate.communication.between_hosts =
      bytes_between_hosts(candidate.communication, settings, mesh, gpus_per_host);
  return candidate;
}

std::vector<LayoutCandidate> search_layouts(const Settings& settings, const ModelFamily& family,
                                            const LayoutRequest& request) {
  std::vector<LayoutCandidate> layouts;
  LayerTraces traces(family);
  Problems first_problems;
  for (const MeshSizes& sizes : considered_sizes(settings, request)) {
    Problems problems = check_mesh_sizes(sizes, request.world_size);
    if (problems.empty()) {
      const Settings chosen = settings_with(settings, sizes, request.world_size);
      problems = check_layout(chosen, request.world_size);
      if (problems.empty())
        layouts.push_back(
            evaluate_layout(chosen, traces, request.world_size, request.gpus_per_host));
    }
    if (first_problems.empty()) first_problems = std::move(problems);
  }
  if (layouts.empty()) first_problems.throw_if_any();
  std::ranges::stable_sort(layouts, {},
                           [](const LayoutCandidate& layout) { return layout.memory.total(); });
  return layouts;
}

std::size_t rank_layouts(std::vector<LayoutCandidate>& layouts, double memory_limit,
                         std::int64_t seq_length) {
  constexpr double kGibibyte = 1 << 30;
  const auto rest = std::ranges::stable_partition(layouts, [&](const LayoutCandidate& layout) {
    return layout.memory.total() <= memory_limit;
  });
  const std::span<LayoutCandidate> fitting(layouts.begin(), rest.begin());
  double least = std::numeric_limits<double>::max();
  for (const LayoutCandidate& layout : fitting)
    least = std::min(least, layout.communication.between_hosts);
  const auto order = [&](const LayoutCandidate& layout) {
    const double sent = layout.communication.between_hosts;
    return LayoutOrder{seq_length > kShortSequence ? 1 : static_cast<double>(layout.sizes.cp),
                       sent <= least ? 0 : std::floor(std::log2(sent / least) / 2), layout.bubble,
                       layout.communication.inside_host()};
  };
  std::ranges::stable_sort(fitting, {}, order);
  for (LayoutCandidate& layout : fitting) {
    const LayoutOrder own = order(layout), best = order(fitting.front());
    const auto first = std::ranges::mismatch(own, best).in1 - own.begin();
    layout.why = kReasons[static_cast<std::size_t>(first)];
  }
  for (LayoutCandidate& layout : rest) {
    const double excess = (layout.memory.total() - memory_limit) / kGibibyte;
    layout.why = format(
        excess < 100 ? "above the limit by %.3g GiB" : "above the limit by %.0f GiB", excess);
  }
  return fitting.size();
}

std::vector<CheckpointShare> checkpoint_shares(const Settings& settings, const ModelFamily& family,
                                               std::int64_t world_size) {
  const Settings whole = without_sharding(settings);
  const PipelineLayout layout = pipeline_layout(*whole.parallel, *whole.model);
  const std::int64_t num_microbatches = first_num_microbatches(whole, world_size);
  const auto size = static_cast<double>(c10::elementSize(params_dtype(*whole.training)));
  LayerTraces traces(family);
  std::vector<CheckpointShare> shares;
  for (const Rank& rank : pipeline_ranks(whole, world_size)) {
    const RankMemory memory = predict_rank_memory(whole, traces, rank, layout, num_microbatches);
    const double weights = size * (memory.num_dense_weights / static_cast<double>(rank.dp_cp.size) +
                                   memory.num_expert_weights / static_cast<double>(rank.edp.size));
    shares.push_back(
        {weights, weights * (memory.main_parameters + memory.optimizer_state) / memory.parameters});
  }
  return shares;
}

}  // namespace megatron
