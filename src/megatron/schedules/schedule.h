// A pipeline schedule as data: the list of steps of every rank. Pure functions make it
// (make_schedule.h, search.h); one validator, one simulator, one set of drawings and one
// interpreter handle all schedules.
//
// The model is split into p·v stages. Each of the p ranks holds v of them, called its chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

enum class StepKind : std::uint8_t {
  forward,          ///< F
  backward,         ///< B and W as one step
  backward_input,   ///< B: gradients of activations
  backward_weight,  ///< W: gradients of weights, deferred by B
  send_forward,     ///< starts sending the output of a forward to the next stage
  recv_forward,     ///< starts receiving the input of a forward from the stage before
  send_backward,    ///< starts sending the input gradient of a backward to the stage before
  recv_backward     ///< starts receiving the output gradient of a backward from the next stage
};

/// Returns "F", "BW" (backward), "B", "W", "send F", "recv F", "send B" or "recv B".
const char* name_of(StepKind kind);
/// Returns "forward", "backward", "input gradients", "weight gradients" or "message".
const char* description_of(StepKind kind);
/// Returns whether the step is a forward or one of its messages.
inline bool is_forward(StepKind kind) {
  return kind == StepKind::forward || kind == StepKind::send_forward ||
         kind == StepKind::recv_forward;
}
/// Returns whether the step computes the gradients of activations.
inline bool is_backward(StepKind kind) {
  return kind == StepKind::backward || kind == StepKind::backward_input;
}
inline bool is_message(StepKind kind) { return kind >= StepKind::send_forward; }

/// One step of a rank. A message has the `chunk` and `microbatch` of the forward or backward whose
/// input or output it carries. Both count from 0.
struct ScheduleStep {
  StepKind kind = StepKind::forward;
  std::int32_t microbatch = 0, chunk = 0;
  /// A forward that runs interleaved with the backward after it (combined 1F1B).
  bool joins_next = false;
  bool operator==(const ScheduleStep&) const = default;
};

/// Maps the chunks of a rank to stages.
enum class ChunkOrder : std::uint8_t {
  loop,  ///< Chunk c of rank r is stage c·p + r.
  v      ///< Two chunks of rank r: stage r and stage 2p − 1 − r.
};

struct Schedule {
  std::string name;  ///< Such as "1f1b".
  std::int64_t num_ranks = 1, num_chunks = 1, num_microbatches = 1;
  ChunkOrder order = ChunkOrder::loop;
  std::vector<std::vector<ScheduleStep>> ranks;

  std::int64_t num_stages() const { return num_ranks * num_chunks; }
  std::int64_t stage_of(std::int64_t rank, std::int64_t chunk) const;
  std::int64_t rank_of(std::int64_t stage) const;
  std::int64_t chunk_of(std::int64_t stage) const;
};

/// Schedule::stage_of() and its inverses for use without a schedule.
std::int64_t stage_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t rank,
                      std::int64_t chunk);
std::int64_t rank_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t stage);
std::int64_t chunk_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t stage);

/// Returns the most microbatches at a time whose forward has run on the last stage and whose
/// backward has not.
std::int64_t max_pending_losses(const Schedule& schedule);

}  // namespace megatron
