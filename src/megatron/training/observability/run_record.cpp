#include "megatron/training/observability/run_record.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <fstream>

#include "megatron/base/json_text.h"
#include "megatron/base/machine.h"
#include "megatron/config/print_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

std::string cpu_model_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown CPU";
}

std::string machine(const std::string& device_name) {
  return host_name() + ", " + (device_name.empty() ? "" : device_name + ", ") + cpu_model_name() +
         ", " + std::to_string(at::get_num_threads()) + " threads";
}

/// Counts each weight once, even if several ranks hold it.
std::int64_t num_model_parameters(const ParamStore& weights) {
  double total = 0;
  for (std::size_t group = 0; group < weights.groups().size(); ++group) {
    std::int64_t mine = 0;
    for (const Parameter* parameter : weights.parameters()) {
      if (weights.group_of(*parameter) != group || parameter->spec().kind == ParameterKind::state)
        continue;
      for (const TensorSlice& slice : parameter->owned_slices()) mine += num_elements(slice.shape);
    }
    total += all_reduce_sum({weights.groups()[group].model, weights.device()},
                            {static_cast<double>(mine)}, "parameters")
                 .front();
  }
  return std::llround(total);
}

}  // namespace

JsonText run_record(const TrainingPlan& plan, const TrainingState& state,
                    const std::vector<SplitShare>& data) {
  JsonText settings = JsonText::object();
  for (const auto& [name, value] : argument_values(plan.settings)) settings[name] = value;
  return {{"iteration", state.progress.iteration},
          {"run",
           {{"started", current_time()},
            {"machine", machine(plan.device_name)},
            {"parameters", num_model_parameters(*state.weights)},
            {"flops_per_iteration", plan.flops(state.batch)},
            {"world_size", plan.rank.world.size},
            {"data_parallel_size", plan.rank.dp.size},
            {"data", data_json(data)},
            {"settings", std::move(settings)}}}};
}

}  // namespace megatron
