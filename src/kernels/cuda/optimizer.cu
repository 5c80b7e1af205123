// Launches the optimizer kernels on the device.
#include "kernels/cuda/adamw_body.h"
#include "kernels/cuda/gradient_norm_body.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sgd_body.h"

namespace megatron::kernels::cuda {
namespace {

struct SquareChunk {
  template <class Team>
  __device__ static void run(const StatisticsPlan& plan, std::int64_t index, const Team& team) {
    square_chunk(plan, index, team);
  }
};

struct CountChunkZeros {
  template <class Team>
  __device__ static void run(const StatisticsPlan& plan, std::int64_t index, const Team& team) {
    count_chunk_zeros(plan, index, team);
  }
};

/// The arguments of an update: the chunks, and the settings of the rule.
template <class Settings>
struct UpdateCall {
  UpdatePlan plan;
  Settings settings;
};

template <class C, template <class> class Rule>
struct UpdateChunks {
  template <class Settings, class Team>
  __device__ static void run(const UpdateCall<Settings>& call, std::int64_t index,
                             const Team& team) {
    update_chunk<C, Rule>(call.plan, call.settings, index, team);
  }
};

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
    for_each_team<UpdateChunks<double, Rule>, kUpdateTeam>(call, plan.num_chunks, stream);
  } else if (plan.types.main == Type::f32) {
    for_each_team<UpdateChunks<float, Rule>, kUpdateTeam>(call, plan.num_chunks, stream);
  } else {
    return "main weights are f32 or f64";
  }
  return launch_error();
}

}  // namespace

const char* sum_squares(const StatisticsPlan& plan, void* stream) {
  for_each_team<SquareChunk, kChunkTeam>(plan, plan.num_chunks, stream);
  return launch_error();
}

const char* count_zeros(const StatisticsPlan& plan, void* stream) {
  for_each_team<CountChunkZeros, kChunkTeam>(plan, plan.num_chunks, stream);
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
