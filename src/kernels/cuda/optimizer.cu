// Launches the optimizer kernels on the device.
#include "kernels/cuda/adamw_body.h"
#include "kernels/cuda/gradient_norm_body.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sgd_body.h"

namespace megatron::kernels::cuda {
namespace {

/// The arguments of an update: the chunks, and the settings of the rule.
template <class Settings>
struct UpdateCall {
  UpdatePlan plan;
  Settings settings;
};

MEGATRON_ANY_TEAM
template <class C, template <class> class Rule, class Settings>
MEGATRON_HOST_DEVICE void update_one(const UpdateCall<Settings>& call, std::int64_t index,
                                     const DeviceTeam<kUpdateTeam>& team) {
  update_chunk<C, Rule>(call.plan, call.settings, index, team);
}

struct FinalizeCall {
  StatisticsPlan plan;
  StepRules rules;
  StepInputs inputs;
  StepScalars* scalars;
};

MEGATRON_HOST_DEVICE void finalize_all(const FinalizeCall& call, std::int64_t) {
  finalize(call.plan, call.rules, call.inputs, *call.scalars);
}

MEGATRON_HOST_DEVICE void finalize_all_zeros(const FinalizeCall& call, std::int64_t) {
  finalize_zeros(call.plan, *call.scalars);
}

template <template <class> class Rule, class Settings>
const char* update(const UpdatePlan& plan, const Settings& settings, void* stream) {
  const UpdateCall<Settings> call{plan, settings};
  if (plan.types.main == Type::f64) {
    for_each_team<update_one<double, Rule, Settings>, kUpdateTeam>(call, plan.num_chunks, stream);
  } else if (plan.types.main == Type::f32) {
    for_each_team<update_one<float, Rule, Settings>, kUpdateTeam>(call, plan.num_chunks, stream);
  } else {
    return "main weights are f32 or f64";
  }
  return launch_error();
}

}  // namespace

const char* sum_squares(const StatisticsPlan& plan, void* stream) {
  for_each_team<square_chunk<DeviceTeam<kChunkTeam>>, kChunkTeam>(plan, plan.num_chunks, stream);
  return launch_error();
}

const char* count_zeros(const StatisticsPlan& plan, void* stream) {
  for_each_team<count_chunk_zeros<DeviceTeam<kChunkTeam>>, kChunkTeam>(plan, plan.num_chunks,
                                                                       stream);
  return launch_error();
}

const char* reduce_sums(const StatisticsPlan& plan, void* stream) {
  for_each_item<reduce_sum>(plan, plan.table.num_parameters, stream);
  return launch_error();
}

const char* finalize(const StatisticsPlan& plan, const StepRules& rules, const StepInputs& inputs,
                     StepScalars* scalars, void* stream) {
  for_each_item<finalize_all>(FinalizeCall{plan, rules, inputs, scalars}, 1, stream);
  return launch_error();
}

const char* finalize_zeros(const StatisticsPlan& plan, StepScalars* scalars, void* stream) {
  for_each_item<finalize_all_zeros>(FinalizeCall{plan, {}, {}, scalars}, 1, stream);
  return launch_error();
}

const char* adamw(const UpdatePlan& plan, const AdamwRule& rule, void* stream) {
  return update<Adamw>(plan, rule, stream);
}

const char* sgd(const UpdatePlan& plan, const SgdRule& rule, void* stream) {
  return update<Sgd>(plan, rule, stream);
}

}  // namespace megatron::kernels::cuda
