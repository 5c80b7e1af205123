// Launches the rotary embedding on the device.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/rotary_body.h"

namespace megatron::kernels::cuda {
namespace {

template <class T>
struct Rotary {
  __device__ static void run(const RotaryArguments& arguments, std::int64_t item) {
    rotary_item<T>(arguments, item);
  }
};

}  // namespace

const char* rotary(const RotaryArguments& arguments, void* stream) {
  const std::int64_t items = arguments.tokens * arguments.heads * rotary_items_per_head(arguments);
  with_type(arguments.type, [&]<class T>() { for_each_item<Rotary<T>>(arguments, items, stream); });
  return launch_error();
}

}  // namespace megatron::kernels::cuda
