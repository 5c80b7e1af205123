#include "megatron/planner/predict_memory_table.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "megatron/base/offload_file.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/mesh.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/shared_memory/shared_memory_area.h"

namespace megatron {
namespace {

constexpr double kMostSlack = 0.05;            ///< of the tensors of a small model
constexpr double kPrefetchedMicrobatches = 8;  ///< PrefetchOptions::depth

double number(std::int64_t count) { return static_cast<double>(count); }

/// Returns the axes whose ranks exchange tensors in a step.
std::vector<std::string> tensor_axes(const Settings& settings) {
  std::vector<std::string> axes{"tp", "dp-cp"};
  if (settings.model->moe.num_experts > 0) axes.insert(axes.end(), {"etp-ep", "edp"});
  const auto uses_collectives = [](CpCommType type) { return type != CpCommType::p2p; };
  if (std::ranges::any_of(settings.parallel->cp_comm_type, uses_collectives))
    axes.emplace_back("cp");
  return axes;
}

/// Returns the number of neighbours with which a rank of a pipeline exchanges messages.
std::int64_t pipeline_neighbours(const Rank& rank, std::int64_t num_chunks) {
  if (rank.pp.size == 1) return 0;
  const bool is_end = rank.pp.rank == 0 || rank.pp.rank + 1 == rank.pp.size;
  return rank.pp.size == 2 || (is_end && num_chunks == 1) ? 1 : 2;
}

/// Adds what the units keep. Besides the layers these are the embedding's output, which the first
/// layer reads, and the final norm's, which the loss reads. They are part of the buffers that
/// predict_rank_memory() returns.
void add_units(MemoryTable& table, const TransformerConfig& config, const ActivationLayout& layout,
               const StepShape& shape, const StageActivations& stage) {
  for (std::size_t i = 0; i < shape.layers.size(); ++i)
    table.units.push_back({.name = "layer " + std::to_string(shape.layers[i]),
                           .kind = std::string(words_of(config.kind(shape.layers[i]))),
                           .bytes = shape.microbatches_in_flight * stage.kept[i]});
  if (!shape.has_output) return;
  const double hidden = hidden_bytes(config, layout), both = std::min(table.temporary, 2 * hidden);
  const bool has_embedding = !shape.layers.empty() && shape.layers.front() == 0;
  if (has_embedding)
    table.units.insert(table.units.begin(),
                       {.name = "embedding", .kind = "embedding", .bytes = both / 2});
  table.units.push_back({.name = "final layernorm",
                         .kind = "final layernorm",
                         .bytes = has_embedding ? both / 2 : both});
  table.activations += both;
  table.temporary -= both;
}

/// Returns the gap that the last layer leaves in the CPU allocator's heap when it is recomputed as
/// a whole: forward frees its activations, but its output lies above them. What follows uses half
/// of the gap, as measured.
double recompute_gap_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                           const StepShape& shape, const StageActivations& stage) {
  if (!shape.has_output || shape.layers.empty() || !shape.activations.of(shape.layers.back()).full)
    return 0;
  return (stage.whole.back().kept_by({LayerNode::mlp_norm, LayerNode::mlp}) +
          hidden_bytes(config, layout)) /
         2;
}

/// Returns the memory by which the threads of offload files align data.
double offload_file_bytes(const Settings& settings) {
  const int files = (settings.memory->offload.optimizer_cpu_offload ? 1 : 0) +
                    (offloads_layers(*settings.memory) ? 1 : 0);
  if (settings.parallel->device == "cuda") return 0;
  return static_cast<double>(files * OffloadFile::Options{}.num_threads) *
         static_cast<double>(OffloadFile::kPieceBytes);
}

}  // namespace

double communication_bytes(const Settings& settings, const Rank& rank,
                           const std::vector<std::vector<std::int64_t>>& sharing_stages) {
  if (settings.parallel->device == "cuda") return 0;
  const Mesh mesh(mesh_sizes(*settings.parallel), rank.world.size);
  const double hidden = hidden_bytes(*settings.model, activation_layout(settings, rank)),
               slot = number(kSlotBytes);
  // The embedding's output is float32, because its weights are (precision.md).
  const double embedded = hidden * 4 / activation_layout(settings, rank).element_bytes;
  std::map<RankList, double> touched;  // of a slot; groups of the same ranks share one area
  for (const std::string& axis : tensor_axes(settings)) {
    double& bytes = touched[mesh.group(rank.index, axis)];
    const bool has_gradients = axis == "dp-cp" || axis == "edp";
    bytes =
        std::max(bytes, has_gradients ? slot : std::min(slot, axis == "tp" ? embedded : hidden));
  }
  const RankList pipeline = mesh.group(rank.index, "pp");
  for (const std::vector<std::int64_t>& stages : sharing_stages) {
    RankList ranks;
    for (const std::int64_t stage : stages)
      ranks.push_back(pipeline[static_cast<std::size_t>(stage)]);
    touched[ranks] = slot;
  }
  double bytes = 0;
  for (const auto& [group, part] : touched)
    if (group.size() > 1) bytes += number(std::ssize(group) * kSlots) * part;
  const auto rings = [&](std::int64_t count, std::int64_t ranks) {
    return number(count) * std::min(hidden, number(SharedMemoryArea::ring_bytes(ranks)));
  };
  const std::int64_t chunks = num_pipeline_chunks(*settings.parallel, settings.model->num_layers),
                     neighbours = pipeline_neighbours(rank, chunks);
  if (neighbours > 0) bytes += rings(2 * neighbours, rank.pp.size);
  const bool has_ring = std::ranges::any_of(settings.parallel->cp_comm_type, [](CpCommType type) {
    return type == CpCommType::p2p || type == CpCommType::a2a_p2p;
  });
  return has_ring && rank.cp.size > 1 ? bytes + rings(2, rank.cp.size) : bytes;
}

double host_bytes(const Settings& settings, const ActivationLayout& layout, const StepShape& shape,
                  const HostBaseline& baseline) {
  const double prepared = settings.data->num_workers > 0 ? kPrefetchedMicrobatches : 0;
  const double workspaces =
      number(baseline.num_threads) * attention_workspace_bytes(*settings.model, layout, shape);
  return prepared * kSampleBytes * number(layout.tokens) +
         std::max(workspaces, baseline.workspaces) + offload_file_bytes(settings);
}

MemoryTable predict_memory_table(const Settings& settings, LayerTraces& traces, const Rank& rank,
                                 const PipelineLayout& layout, std::int64_t num_microbatches,
                                 const HostBaseline& baseline) {
  const RankMemory memory = predict_rank_memory(settings, traces, rank, layout, num_microbatches);
  const ActivationLayout activations = activation_layout(settings, rank);
  const StepShape shape = step_shape(settings, rank, layout, num_microbatches);
  const StageActivations stage =
      stage_activations(settings, rank, shape.layers, shape.activations, traces);
  MemoryTable table{.parameters = memory.parameters,
                    .main_parameters = memory.main_parameters,
                    .gradients = memory.gradients,
                    .optimizer_state = memory.optimizer_state,
                    .activations = memory.activations,
                    .temporary = memory.buffers,
                    .communication = communication_bytes(settings, rank, memory.sharing_stages),
                    .host = baseline.host + host_bytes(settings, activations, shape, baseline),
                    .libraries = baseline.libraries};
  const double tensors = table.model() + table.activations + table.temporary;
  table.allocator_slack =
      std::max(baseline.allocator_slack, std::min(baseline.usual_slack, kMostSlack * tensors));
  if (settings.parallel->device != "cuda")
    table.allocator_slack += recompute_gap_bytes(*settings.model, activations, shape, stage);
  add_units(table, *settings.model, activations, shape, stage);
  const double moved = number(num_microbatches) * memory.offloaded_activations;
  table.offloaded_activations = {
      .peak = shape.microbatches_in_flight * memory.offloaded_activations,
      .written = moved,
      .read = moved};
  table.offloaded_state = {.now = memory.offloaded_state,
                           .peak = memory.offloaded_state,
                           .written = memory.offloaded_state,
                           .read = memory.offloaded_state};
  table.peak = table.explained();
  return table;
}

}  // namespace megatron
