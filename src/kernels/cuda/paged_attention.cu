// Launches attention to the blocks of a KV cache on the device.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/paged_attention_body.h"

namespace megatron::kernels::cuda {
namespace {

template <class T>
struct Append {
  __device__ static void run(const PagedAttentionArguments& arguments, std::int64_t item) {
    append_item<T>(arguments, item);
  }
};

template <class T>
struct Row {
  template <class Team>
  __device__ static void run(const PagedAttentionArguments& arguments, std::int64_t index,
                             const Team& team) {
    paged_attention_row<T>(arguments, index, team);
  }
};

template <class T>
struct Part {
  template <class Team>
  __device__ static void run(const AttentionParts& call, std::int64_t item, const Team& team) {
    paged_attention_part<T>(call, item, team);
  }
};

template <class T>
struct Total {
  template <class Team>
  __device__ static void run(const AttentionParts& call, std::int64_t index, const Team& team) {
    paged_attention_total<T>(call, index, team);
  }
};

}  // namespace

std::int64_t paged_attention_workspace_bytes(const PagedAttentionArguments& arguments) {
  const std::int64_t parts = attention_parts(arguments);
  return parts <= 1 ? 0
                    : arguments.num_rows * arguments.n * parts * (2 + arguments.dv) *
                          (arguments.type == Type::f64 ? 8 : 4);
}

const char* paged_attention(const PagedAttentionArguments& arguments, void* workspace,
                            void* stream) {
  const AttentionParts call{arguments, workspace, attention_parts(arguments)};
  const std::int64_t items = arguments.num_rows * arguments.n;
  with_type(arguments.type, [&]<class T>() {
    for_each_item<Append<T>>(arguments, arguments.num_rows * arguments.g * arguments.kept, stream);
    if (arguments.q.data == nullptr) return;
    if (call.parts <= 1) return for_each_team<Row<T>, kAttentionTeam>(arguments, items, stream);
    for_each_team<Part<T>, kAttentionTeam>(call, items * call.parts, stream);
    for_each_team<Total<T>, kAttentionTeam>(call, items, stream);
  });
  return launch_error();
}

}  // namespace megatron::kernels::cuda
