#include "megatron/models/model.h"

#include "megatron/base/error.h"

namespace megatron {

StepOutput Model::forward_step(const Microbatch& microbatch, bool training) {
  StageOutput output = forward_chunk(0, microbatch, {}, training);
  MEGATRON_CHECK(output.loss.has_value(),
                 "a forward step on a rank that holds a part of the model");
  return *std::move(output.loss);
}

}  // namespace megatron
