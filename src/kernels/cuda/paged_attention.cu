// Launches attention to the blocks of a KV cache on the device.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/paged_attention_body.h"

namespace megatron::kernels::cuda {

const char* append_to_cache(const PagedAttentionArguments& arguments, void* stream) {
  with_type(arguments.type, [&]<class T>() {
    for_each_item<append_item<T>>(arguments, arguments.num_rows * arguments.g * arguments.kept,
                                  stream);
  });
  return launch_error();
}

const char* paged_attention(const PagedAttentionArguments& arguments, void* stream) {
  const std::int64_t items = arguments.num_rows * arguments.n;
  with_type(arguments.type, [&]<class T>() {
    for_each_team<paged_attention_part<T, DeviceTeam<kAttentionTeam>>, kAttentionTeam>(
        arguments, items * arguments.parts, stream);
    for_each_item<paged_attention_total<T>>(arguments, items * arguments.dv, stream);
  });
  return launch_error();
}

}  // namespace megatron::kernels::cuda
