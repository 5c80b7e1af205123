// Launches RMSNorm on the device, with a warp or a block for each row.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/rms_norm_body.h"

namespace megatron::kernels::cuda {
namespace {

constexpr std::int64_t kWarpColumns = 1024;  // a warp processes rows up to this length

template <auto by_warp, auto by_block, class Arguments>
void for_each_row(const Arguments& arguments, void* stream) {
  if (arguments.columns <= kWarpColumns) {
    for_each_team<by_warp, 32>(arguments, arguments.rows, stream);
  } else {
    for_each_team<by_block, 256>(arguments, arguments.rows, stream);
  }
}

}  // namespace

const char* rms_norm(const RmsNormArguments& arguments, void* stream) {
  with_types(arguments.x_type, arguments.y_type, [&]<class X, class Y>() {
    for_each_row<rms_norm_row<X, Y, DeviceTeam<32>>, rms_norm_row<X, Y, DeviceTeam<256>>>(arguments,
                                                                                          stream);
  });
  return launch_error();
}

std::int64_t weight_gradient_workspace_bytes(const RmsNormBackwardArguments& arguments) {
  return weight_blocks(arguments.rows) * arguments.columns *
         (arguments.x_type == Type::f64 ? 8 : 4);
}

const char* rms_norm_backward(const RmsNormBackwardArguments& arguments, void* workspace,
                              void* stream) {
  const WeightGradient weight{arguments, workspace};
  with_types(arguments.x_type, arguments.y_type, [&]<class X, class Y>() {
    for_each_row<rms_norm_backward_row<X, Y, DeviceTeam<32>>,
                 rms_norm_backward_row<X, Y, DeviceTeam<256>>>(arguments, stream);
    for_each_item<weight_gradient_partial<X, Y>>(
        weight, weight_blocks(arguments.rows) * arguments.columns, stream);
    for_each_item<weight_gradient_total<Compute<X>>>(weight, arguments.columns, stream);
  });
  return launch_error();
}

}  // namespace megatron::kernels::cuda
