#include "megatron/transformer/flat_layout.h"

namespace megatron {

FlatLayout flat_layout(const std::vector<Parameter*>& parameters) {
  constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes in fp32
  FlatLayout layout;
  for (const Parameter* parameter : parameters) {
    layout.offsets.push_back(layout.size);
    layout.size += (num_elements(parameter->local_shape()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

}  // namespace megatron
