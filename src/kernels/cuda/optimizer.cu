// Launches the optimizer kernels on the device.
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

struct FinalizeCall {
  UpdatePlan plan;
  StepInputs inputs;
};

struct Finalize {
  __device__ static void run(const FinalizeCall& call, std::int64_t) {
    finalize(call.plan, call.inputs);
  }
};

struct FinalizeZeros {
  __device__ static void run(const UpdatePlan& plan, std::int64_t) { finalize_zeros(plan); }
};

struct ReduceSum {
  __device__ static void run(const UpdatePlan& plan, std::int64_t parameter) {
    reduce_sum(plan, parameter);
  }
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

const char* reduce_sums(const UpdatePlan& plan, void* stream) {
  for_each_item<ReduceSum>(plan, plan.table.num_parameters, stream);
  return launch_error();
}

const char* finalize(const UpdatePlan& plan, const StepInputs& inputs, void* stream) {
  for_each_item<Finalize>(FinalizeCall{plan, inputs}, 1, stream);
  return launch_error();
}

const char* finalize_zeros(const UpdatePlan& plan, void* stream) {
  for_each_item<FinalizeZeros>(plan, 1, stream);
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
