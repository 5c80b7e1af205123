#include "megatron/nn/forward_context.h"

#include <string>

#include "megatron/base/error.h"
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

void ForwardContext::publish(std::string_view key, const at::Tensor& tensor) const {
  MEGATRON_CHECK(published_tensors != nullptr, "nothing receives the tensor ", key);
  published_tensors->insert_or_assign(std::string(key), tensor);
}

const at::Tensor& ForwardContext::published(std::string_view key) const {
  MEGATRON_CHECK(published_tensors != nullptr && published_tensors->contains(key),
                 "no layer has published the tensor ", key);
  return published_tensors->find(key)->second;
}

}  // namespace megatron
