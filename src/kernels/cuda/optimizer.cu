#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/optimizer_body.h"

namespace megatron::kernels::cuda {
namespace {

struct SquareChunk {
  template <class Team>
  __device__ static void run(const UpdatePlan& plan, std::int64_t index, const Team& team) {
    square_chunk(plan, index, team);
  }
};

struct CountChunkZeros {
  template <class Team>
  __device__ static void run(const UpdatePlan& plan, std::int64_t index, const Team& team) {
    count_chunk_zeros(plan, index, team);
  }
};

template <class C>
struct UpdateChunks {
  template <class Team>
  __device__ static void run(const UpdatePlan& plan, std::int64_t index, const Team& team) {
    update_chunk<C>(plan, index, team);
  }
};

struct SettleCall {
  UpdatePlan plan;
  StepInputs inputs;
};

struct Settle {
  __device__ static void run(const SettleCall& call, std::int64_t) { settle(call.plan, call.inputs); }
};

struct SettleZeros {
  __device__ static void run(const UpdatePlan& plan, std::int64_t) { settle_zeros(plan); }
};

struct FoldSum {
  __device__ static void run(const UpdatePlan& plan, std::int64_t parameter) { fold_sum(plan, parameter); }
};

}  // namespace

const char* sum_squares(const UpdatePlan& plan, void* stream) {
  for_each_team<SquareChunk, kChunkTeam>(plan, plan.num_chunks, stream);
  return launch_error();
}

const char* count_zeros(const UpdatePlan& plan, void* stream) {
  for_each_team<CountChunkZeros, kChunkTeam>(plan, plan.num_chunks, stream);
  return launch_error();
}

const char* fold_sums(const UpdatePlan& plan, void* stream) {
  for_each_item<FoldSum>(plan, plan.table.num_parameters, stream);
  return launch_error();
}

const char* settle(const UpdatePlan& plan, const StepInputs& inputs, void* stream) {
  for_each_item<Settle>(SettleCall{plan, inputs}, 1, stream);
  return launch_error();
}

const char* settle_zeros(const UpdatePlan& plan, void* stream) {
  for_each_item<SettleZeros>(plan, 1, stream);
  return launch_error();
}

const char* update(const UpdatePlan& plan, void* stream) {
  if (plan.types.main == Type::f64) {
    for_each_team<UpdateChunks<double>, kChunkTeam>(plan, plan.num_chunks, stream);
  } else if (plan.types.main == Type::f32) {
    for_each_team<UpdateChunks<float>, kChunkTeam>(plan, plan.num_chunks, stream);
  } else {
    return "main weights are f32 or f64";
  }
  return launch_error();
}

}  // namespace megatron::kernels::cuda
