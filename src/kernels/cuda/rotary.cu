// Launches the rotary embedding on the device.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/rotary_body.h"

namespace megatron::kernels::cuda {

const char* rotary(const RotaryArguments& arguments, void* stream) {
  const std::int64_t items = arguments.tokens * arguments.heads * rotary_items_per_head(arguments);
  with_type(arguments.type,
            [&]<class T>() { for_each_item<rotary_item<T>>(arguments, items, stream); });
  return launch_error();
}

}  // namespace megatron::kernels::cuda
