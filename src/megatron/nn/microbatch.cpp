#include "megatron/nn/microbatch.h"

#include "megatron/base/error.h"

namespace megatron {

const at::Tensor& Microbatch::at(const std::string& name) const {
  const auto found = tensors.find(name);
  MEGATRON_CHECK(found != tensors.end(), "the microbatch has no tensor named ", name);
  return found->second;
}

}  // namespace megatron
