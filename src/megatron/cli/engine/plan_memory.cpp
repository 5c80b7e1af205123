// Implements `megatron plan --memory`: predicts the table of --log-memory for a run, for every rank
// of its pipeline. Parameters are declared without storage; no weight of the model exists.
#include <algorithm>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/memory_probe.h"
#include "megatron/cli/engine/plan_checks.h"
#include "megatron/cli/memory_plan_fields.h"
#include "megatron/cli/plan_run_fields.h"
#include "megatron/planner/plan_layouts.h"

namespace megatron {
namespace {

struct MemoryPlanOptions {
  bool memory = false, json = false;
  std::optional<std::int64_t> world_size;
  std::string model = "gpt";
  Settings run;
};

const FieldTable<MemoryPlanOptions>& memory_plan_table() {
  using Options = MemoryPlanOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    add_memory_plan_fields(t);
    t.field("json", &Options::json, "print the memory of every rank of the pipeline as JSON");
    t.field("world_size", &Options::world_size, "number of ranks").at_least(1).at_most(1'000'000);
    add_plan_run_fields(t);
    return t;
  }();
  return table;
}

/// Returns the fewest ranks that the sizes of parallelism allow.
std::int64_t least_world_size(const MeshSizes& sizes) {
  const std::int64_t dense = sizes.tp * sizes.cp, experts = sizes.expert_tp() * sizes.ep;
  return std::max(dense, experts) * sizes.pp;
}

struct PlannedMemory {
  Rank rank;
  MemoryTable table;
};

std::vector<PlannedMemory> plan_memory(const Settings& settings, const ModelFamily& family,
                                       std::int64_t world_size) {
  const HostBaseline baseline = probe_memory(settings, world_size);
  const PipelineLayout layout = pipeline_layout(settings.parallel, settings.model.num_layers);
  const std::int64_t num_microbatches = first_num_microbatches(settings, world_size);
  std::vector<PlannedMemory> planned;
  for (const Rank& rank : pipeline_ranks(settings, world_size))
    planned.push_back(
        {rank, predict_memory_table(settings, family, rank, layout, num_microbatches, baseline)});
  return planned;
}

const PlannedMemory& largest_of(const std::vector<PlannedMemory>& planned) {
  return *std::ranges::max_element(planned, {},
                                   [](const PlannedMemory& rank) { return rank.table.peak; });
}

std::string text_of(const std::vector<PlannedMemory>& planned, std::int64_t world_size) {
  const PlannedMemory& largest = largest_of(planned);
  std::string title = format("predicted memory by part (MB) of rank %lld",
                             static_cast<long long>(largest.rank.index));
  if (planned.size() > 1)
    title += format(", stage %lld of %zu and the largest",
                    static_cast<long long>(largest.rank.pp.rank), planned.size());
  title +=
      format(", of %lld rank%s:", static_cast<long long>(world_size), world_size == 1 ? "" : "s");
  const MemoryColumn column{title, &largest.table};
  return title + memory_text({&column, 1}) + "\n";
}

std::string json_of(const std::vector<PlannedMemory>& planned, std::int64_t world_size) {
  JsonText ranks = JsonText::array();
  for (const PlannedMemory& rank : planned)
    ranks.push_back({{"rank", rank.rank.index},
                     {"pipeline_rank", rank.rank.pp.rank},
                     {"memory_bytes", memory_json(rank.table)}});
  return JsonText{{"world_size", world_size},
                  {"largest_rank", largest_of(planned).rank.index},
                  {"ranks", std::move(ranks)}}
             .dump() +
         "\n";
}

}  // namespace

int run_plan_memory(std::span<const std::string> args) {
  MemoryPlanOptions options;
  ParseResult parsed = parse_command_line(memory_plan_table(), args, options, "plan");
  std::cerr << notes_text(parsed);
  read_planned_run(options.run, parsed);
  if (options.run.memory.has_budget())
    throw UserError({options.run.memory.memory_budget.empty() ? "--recompute-granularity adaptive"
                                                              : "--memory-budget",
                     "has no effect here: its plan depends on measured times",
                     "leave it out, or give the --activation-plan that such a run prints"});
  const MeshSizes sizes = mesh_sizes(options.run.parallel);
  const std::int64_t world_size = options.world_size.value_or(least_world_size(sizes));
  check_mesh_sizes(sizes, world_size).throw_if_any();
  const Settings settings = settings_with(options.run, sizes, world_size);
  check_layout(settings, world_size).throw_if_any();
  const auto planned = plan_memory(settings, find_model_family(options.model), world_size);
  std::cout << (options.json ? json_of(planned, world_size) : text_of(planned, world_size));
  return 0;
}

}  // namespace megatron
