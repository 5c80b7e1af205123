#include "megatron/training/resume_differences.h"

#include <nlohmann/json.hpp>

#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

/// Sets the members of `object` from the dump; a field that is absent or unreadable there keeps its default.
void read_saved(const Json& saved, const FieldSet& fields, void* object) {
  for (const Field& field : fields.fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end() || !found->is_string()) continue;
    try {
      assign(field, object, std::vector<std::string>{found->get<std::string>()});
    } catch (const FieldError&) {
      continue;
    }
  }
}

}  // namespace

std::string settings_differences(const Json& saved, const Settings& settings) {
  std::string lines;
  for (const Field& field : settings_table().set().fields) {
    const auto found = saved.find(field.name);
    if (field.name == "load" || found == saved.end() || !found->is_string()) continue;
    const std::string there = found->get<std::string>(), here = join_values(field.get(&settings));
    if (there != here) lines += "  " + field.name + ": " + there + " in the checkpoint, " + here + " here\n";
  }
  return lines;
}

Json saved_schedule_state(const Json& saved, const Settings& settings, std::int64_t num_steps) {
  Settings there;
  read_saved(saved, scheduler_table().set(), &there.scheduler);
  read_saved(saved, training_table().set(), &there.training);
  read_saved(saved, optimizer_table().set(), &there.optimizer);
  there.training.train_iters = settings.training.train_iters;
  there.training.train_samples = settings.training.train_samples;
  OptimizerParamScheduler scheduler(make_param_schedule(there.scheduler, there.training, there.optimizer.weight_decay));
  scheduler.set_num_steps(num_steps);
  return scheduler.state();
}

}  // namespace megatron
