#include "megatron/nn/forward_context.h"

#include <string>

#include "megatron/base/philox.h"

namespace megatron {

DropoutSite ForwardContext::dropout(std::string_view path, std::string_view name,
                                    double probability) const {
  if (!training || probability == 0) return {};
  return {.probability = probability,
          .key = philox_key(seed, std::string(path) + "." + std::string(name)),
          .sample_ordinals = sample_ordinals,
          .positions = row_positions};
}

}  // namespace megatron
