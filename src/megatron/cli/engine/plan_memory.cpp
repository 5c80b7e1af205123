// Implements `megatron plan --memory`: predicts the table of --log-memory for a run, for every rank
// of its pipeline. Parameters are declared without storage; no weight of the model exists.
#include <algorithm>
#include <iostream>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/memory_probe.h"
#include "megatron/cli/engine/planned_run.h"
#include "megatron/config/plan_options.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/plan_layouts.h"

namespace megatron {
namespace {

struct PlannedMemory {
  Rank rank;
  MemoryTable table;
};

std::vector<PlannedMemory> plan_memory(const Settings& settings, const ModelFamily& family,
                                       std::int64_t world_size) {
  const HostBaseline baseline = probe_memory(settings, world_size);
  const PipelineLayout layout = pipeline_layout(*settings.parallel, *settings.model);
  const std::int64_t num_microbatches = first_num_microbatches(settings, world_size);
  LayerTraces traces(family);
  std::vector<PlannedMemory> planned;
  for (const Rank& rank : pipeline_ranks(settings, world_size))
    planned.push_back(
        {rank, predict_memory_table(settings, traces, rank, layout, num_microbatches, baseline)});
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

int run_plan_memory(std::span<const std::string> args, const ModelFamilies& families) {
  const PlannedRun run = read_planned_run(PlanMode::memory, args, families);
  const auto planned = plan_memory(run.settings, run.family, run.world_size);
  std::cout << (run.options.json ? json_of(planned, run.world_size)
                                 : text_of(planned, run.world_size));
  return 0;
}

}  // namespace megatron
