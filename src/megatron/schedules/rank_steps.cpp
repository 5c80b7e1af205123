#include "megatron/schedules/rank_steps.h"

namespace megatron {

bool RankSteps::add(StepKind kind, std::int64_t microbatch, std::int64_t chunk) {
  if (microbatch >= x_num_microbatches) return false;
  x_steps.push_back({kind, static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(chunk)});
  return true;
}

void RankSteps::forward(std::int64_t chunk) { add(StepKind::forward, x_next[chunk].forward++, chunk); }

void RankSteps::backward(std::int64_t chunk) {
  add(StepKind::backward, x_next[chunk].backward++, chunk);
  ++x_next[chunk].weight;
}

void RankSteps::backward_input(std::int64_t chunk) { add(StepKind::backward_input, x_next[chunk].backward++, chunk); }

void RankSteps::backward_weight(std::int64_t chunk) { add(StepKind::backward_weight, x_next[chunk].weight++, chunk); }

void RankSteps::forward_and_backward(std::int64_t forward_chunk, std::int64_t backward_chunk) {
  const bool has_forward = add(StepKind::forward, x_next[forward_chunk].forward++, forward_chunk);
  const bool has_backward = add(StepKind::backward, x_next[backward_chunk].backward++, backward_chunk);
  ++x_next[backward_chunk].weight;
  if (has_forward && has_backward) x_steps[x_steps.size() - 2].joins_next = true;
}

}  // namespace megatron
