// Launches dropout on the device.
#include "kernels/cuda/dropout_body.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"

namespace megatron::kernels::cuda {

const char* dropout(const DropoutArguments& arguments, void* stream) {
  const std::int64_t items = arguments.rows * blocks_per_row(arguments.columns);
  with_types(arguments.x_type, arguments.out_type, [&]<class X, class Out>() {
    for_each_item<dropout_item<X, Out>>(arguments, items, stream);
  });
  return launch_error();
}

const char* device_problem() {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, item_kernel<dropout_item<float, float>, DropoutArguments>);
  cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace megatron::kernels::cuda
