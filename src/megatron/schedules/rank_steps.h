// The builder for the steps of one rank, and the generators that use it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Appends steps; each call takes the next microbatch of its chunk. Microbatches from
/// `num_microbatches` on are left out. A schedule that needs more microbatches can thus be written
/// for more, and it stays free of deadlocks without those that do not exist.
class RankSteps {
 public:
  RankSteps(std::int64_t num_chunks, std::int64_t num_microbatches)
      : next_(num_chunks), num_microbatches_(num_microbatches) {}

  void forward(std::int64_t chunk);
  void backward(std::int64_t chunk);
  void backward_input(std::int64_t chunk);
  void backward_weight(std::int64_t chunk);
  /// Adds a forward that is joined with the backward after it.
  void forward_and_backward(std::int64_t forward_chunk, std::int64_t backward_chunk);

  std::vector<ScheduleStep> take() { return std::move(steps_); }

 private:
  struct Next {
    std::int64_t forward = 0, backward = 0, weight = 0;
  };
  bool add(StepKind kind, std::int64_t microbatch, std::int64_t chunk);

  std::vector<Next> next_;
  std::int64_t num_microbatches_;
  std::vector<ScheduleStep> steps_;
};

/// Arguments of a generator. `num_microbatches` may exceed the real number.
struct GeneratorArgs {
  std::int64_t num_ranks, num_chunks, num_microbatches, microbatch_group, rank;
};
using Generator = void (*)(const GeneratorArgs& args, RankSteps& steps);

void gpipe(const GeneratorArgs& args, RankSteps& steps);
void one_f_one_b(const GeneratorArgs& args, RankSteps& steps);
void interleaved(const GeneratorArgs& args, RankSteps& steps);
void combined_1f1b(const GeneratorArgs& args, RankSteps& steps);
void zb_h1(const GeneratorArgs& args, RankSteps& steps);
void zb_h2(const GeneratorArgs& args, RankSteps& steps);
void zb_v(const GeneratorArgs& args, RankSteps& steps);
void dualpipe_v(const GeneratorArgs& args, RankSteps& steps);

/// Adds every forward. Each group of microbatches passes chunk 0, then chunk 1, and so on.
void forward_in_groups(const GeneratorArgs& args, RankSteps& steps);
/// Adds every forward of two chunks in V order. No rank waits once the pipeline is full.
void forward_in_v(const GeneratorArgs& args, RankSteps& steps);

}  // namespace megatron
