// A pipeline schedule is data: for every rank the list of its steps. Pure functions make it
// (make_schedule.h, search.h); one validator, one simulator, one drawing and one interpreter serve
// them all.
//
// The model is cut into p·v stages, of which each of the p ranks holds v, its chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

enum class StepKind : std::uint8_t {
  forward,          ///< F
  backward,         ///< B and W in one
  backward_input,   ///< B: gradients of activations
  backward_weight,  ///< W: gradients of weights, of what its B put off
  send_forward,     ///< starts sending the output of a forward to the next stage
  recv_forward,     ///< starts receiving the input of a forward from the stage before
  send_backward,    ///< starts sending the input gradient of a backward to the stage before
  recv_backward     ///< starts receiving the output gradient of a backward from the next stage
};

/// "F", "BW" (backward), "B", "W", "send F", "recv F", "send B", "recv B".
const char* name_of(StepKind kind);
/// "forward", "backward", "input gradients", "weight gradients", "message".
const char* description_of(StepKind kind);
inline bool is_message(StepKind kind) { return kind >= StepKind::send_forward; }

/// `chunk` and `microbatch` are those of the forward or backward that computes, or whose input or
/// output travels; both count from 0.
struct ScheduleStep {
  StepKind kind = StepKind::forward;
  std::int32_t microbatch = 0, chunk = 0;
  bool joins_next =
      false;  ///< a forward that runs interleaved with the backward behind it (combined 1F1B)
  bool operator==(const ScheduleStep&) const = default;
};

/// Which stages the chunks of a rank are.
enum class ChunkOrder : std::uint8_t {
  loop,  ///< chunk c of rank r is stage c·p + r
  v      ///< two chunks: stage r on the way down, stage 2p − 1 − r on the way up
};

struct Schedule {
  std::string name;  ///< "1f1b"
  std::int64_t num_ranks = 1, num_chunks = 1, num_microbatches = 1;
  ChunkOrder order = ChunkOrder::loop;
  std::vector<std::vector<ScheduleStep>> ranks;

  std::int64_t num_stages() const { return num_ranks * num_chunks; }
  std::int64_t stage_of(std::int64_t rank, std::int64_t chunk) const;
  std::int64_t rank_of(std::int64_t stage) const;
  std::int64_t chunk_of(std::int64_t stage) const;
};

/// The arithmetic of Schedule::stage_of and its inverses, for those who have no schedule yet.
std::int64_t stage_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t rank,
                      std::int64_t chunk);
std::int64_t rank_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t stage);
std::int64_t chunk_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t stage);

}  // namespace megatron
