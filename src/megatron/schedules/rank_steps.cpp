#include "megatron/schedules/rank_steps.h"

namespace megatron {

bool RankSteps::add(StepKind kind, std::int64_t microbatch, std::int64_t chunk) {
  if (microbatch >= num_microbatches_) return false;
  steps_.push_back({kind, static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(chunk)});
  return true;
}

void RankSteps::forward(std::int64_t chunk) {
  add(StepKind::forward, next_[chunk].forward++, chunk);
}

void RankSteps::backward(std::int64_t chunk) {
  add(StepKind::backward, next_[chunk].backward++, chunk);
  ++next_[chunk].weight;
}

void RankSteps::backward_input(std::int64_t chunk) {
  add(StepKind::backward_input, next_[chunk].backward++, chunk);
}

void RankSteps::backward_weight(std::int64_t chunk) {
  add(StepKind::backward_weight, next_[chunk].weight++, chunk);
}

void RankSteps::forward_and_backward(std::int64_t forward_chunk, std::int64_t backward_chunk) {
  const bool has_forward = add(StepKind::forward, next_[forward_chunk].forward++, forward_chunk);
  const bool has_backward =
      add(StepKind::backward, next_[backward_chunk].backward++, backward_chunk);
  ++next_[backward_chunk].weight;
  if (has_forward && has_backward) steps_[steps_.size() - 2].joins_next = true;
}

}  // namespace megatron
