// Implements `megatron plan --world-size N`: searches layouts of a model over ranks and prints the
// memory of a rank by part, what it sends and why a layout stands where it does.
#include <algorithm>
#include <iostream>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/plan_options.h"
#include "megatron/config/resolve.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/planner/plan_layouts.h"

namespace megatron {
namespace {

constexpr double kGibibyte = 1 << 30;

LayoutRequest layout_request(const PlanOptions& options) {
  LayoutRequest request{.world_size = options.world_size, .gpus_per_host = options.gpus_per_host};
  for (const auto& [name, origin] : options.parsed.origins) request.fixed.insert(name);
  return request;
}

/// Returns a note on the powers of two that cannot be sizes of expert parallelism; "" if none.
std::string indivisible_note(const PlanOptions& options, const LayoutRequest& request) {
  const std::int64_t experts = options.run.model->moe.num_experts;
  if (experts == 0 ||
      request.fixed.contains(Setting(&ParallelConfig::expert_model_parallel_size).name()))
    return "";
  std::string sizes;
  for (std::int64_t size = 2; size <= std::min(options.world_size, experts); size *= 2) {
    if (experts % size != 0) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  }
  return sizes.empty()
             ? ""
             : "note: --expert-model-parallel-size " + sizes + ": not considered, " +
                   "because --num-experts " + std::to_string(experts) + " is no multiple\n";
}

/// Returns the note that no layout fits, with what can help.
std::string misfit_note(const PlanOptions& options, const LayoutRequest& request) {
  const bool recomputes = options.run.memory->recompute.recompute_granularity == "full",
             are_given =
                 request.fixed.contains(
                     Setting(&ParallelConfig::tensor_model_parallel_size).name()) &&
                 request.fixed.contains(Setting(&ParallelConfig::context_parallel_size).name());
  return std::string("note: no layout fits --memory-limit-gib; ") +
         (recomputes ? "" : "--recompute-granularity full needs less, and ") +
         (request.world_size > request.gpus_per_host && !are_given
              ? "a larger --gpus-per-host allows more ranks of tp and cp\n"
              : "a larger --world-size can divide the model further\n");
}

std::string row(const LayoutCandidate& layout, bool has_experts) {
  const MeshSizes& sizes = layout.sizes;
  std::string text = format("%4lld %4lld %4lld %4lld", static_cast<long long>(sizes.tp),
                            static_cast<long long>(sizes.cp), static_cast<long long>(sizes.pp),
                            static_cast<long long>(layout.data_parallel));
  if (has_experts)
    text += format(" %4lld %4lld %4lld", static_cast<long long>(sizes.ep),
                   static_cast<long long>(sizes.expert_tp()),
                   static_cast<long long>(layout.expert_data_parallel));
  const RankMemory& memory = layout.memory;
  for (const double bytes :
       {memory.parameters, memory.gradients, memory.main_parameters + memory.optimizer_state,
        memory.activations, memory.buffers, memory.total(), layout.communication.inside_host(),
        layout.communication.between_hosts})
    text += format(" %11.3f", bytes / kGibibyte);
  return text + format(" %8.1f  %s\n", 100 * layout.bubble, layout.why.c_str());
}

std::string table_text(const std::vector<LayoutCandidate>& layouts, const PlanOptions& options) {
  const bool has_experts = options.run.model->moe.num_experts > 0;
  std::string text = "  tp   cp   pp   dp";
  if (has_experts) text += "   ep  etp  edp";
  for (const char* name : {"parameters", "gradients", "optimizer", "activations", "buffers",
                           "total GiB", "in-host", "off-host"})
    text += format(" %11s", name);
  text += " bubble %  why\n";
  const auto count =
      std::min<std::size_t>(layouts.size(), static_cast<std::size_t>(options.max_layouts));
  for (std::size_t i = 0; i < count; ++i) text += row(layouts[i], has_experts);
  if (count < layouts.size())
    text += "and " + std::to_string(layouts.size() - count) + " more (--max-layouts)\n";
  return text;
}

JsonText layout_json(const LayoutCandidate& layout, bool has_experts) {
  JsonText json{{"tensor_model_parallel_size", layout.sizes.tp},
                {"context_parallel_size", layout.sizes.cp},
                {"pipeline_model_parallel_size", layout.sizes.pp},
                {"data_parallel_size", layout.data_parallel},
                {"sequence_parallel", layout.sequence_parallel},
                {"num_microbatches", layout.num_microbatches},
                {"bubble", layout.bubble},
                {"why", layout.why}};
  if (has_experts) {
    json["expert_model_parallel_size"] = layout.sizes.ep;
    json["expert_tensor_parallel_size"] = layout.sizes.expert_tp();
    json["expert_data_parallel_size"] = layout.expert_data_parallel;
  }
  const RankMemory& memory = layout.memory;
  json["memory_bytes"] = {{"parameters", memory.parameters},
                          {"gradients", memory.gradients},
                          {"main_parameters", memory.main_parameters},
                          {"optimizer_state", memory.optimizer_state},
                          {"activations", memory.activations},
                          {"buffers", memory.buffers},
                          {"total", memory.total()}};
  const CommunicationVolume& sent = layout.communication;
  json["sent_bytes"] = {{"tensor", sent.tensor},
                        {"context", sent.context},
                        {"pipeline", sent.pipeline},
                        {"expert", sent.expert},
                        {"data", sent.data + sent.expert_data},
                        {"total", sent.total()},
                        {"inside_host", sent.inside_host()},
                        {"between_hosts", sent.between_hosts}};
  return json;
}

std::string layouts_json(const std::vector<LayoutCandidate>& layouts, std::size_t num_fitting,
                         const PlanOptions& options) {
  JsonText list = JsonText::array();
  for (const LayoutCandidate& layout : layouts)
    list.push_back(layout_json(layout, options.run.model->moe.num_experts > 0));
  const JsonText json{{"world_size", options.world_size},
                      {"gpus_per_host", options.gpus_per_host},
                      {"memory_limit_bytes", options.memory_limit_gib * kGibibyte},
                      {"num_fitting", num_fitting},
                      {"layouts", std::move(list)}};
  return json.dump() + "\n";
}

}  // namespace

int run_plan_layouts(std::span<const std::string> args, const ModelFamilies& families) {
  PlanOptions options = read_plan(PlanMode::layouts, args, families.names());
  check_layout_plan(options);
  resolve(*options.run.model);
  const LayoutRequest request = layout_request(options);
  std::cerr << indivisible_note(options, request);
  std::vector<LayoutCandidate> layouts =
      search_layouts(options.run, find_model_family(options.model, families), request);
  const std::size_t num_fitting =
      rank_layouts(layouts, options.memory_limit_gib * kGibibyte, options.run.training->seq_length);
  if (num_fitting == 0) std::cerr << misfit_note(options, request);
  std::cout << (options.json ? layouts_json(layouts, num_fitting, options)
                             : table_text(layouts, options));
  return 0;
}

}  // namespace megatron
