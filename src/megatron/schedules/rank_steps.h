// What the generators of make_schedule.h write into: the steps of one rank.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Each call takes the next microbatch of its chunk. Microbatches from `num_microbatches` on are
/// left out: a schedule that only works for more of them is written for more, and stays free of
/// deadlocks without those that do not exist.
class RankSteps {
 public:
  RankSteps(std::int64_t num_chunks, std::int64_t num_microbatches)
      : next_(num_chunks), num_microbatches_(num_microbatches) {}

  void forward(std::int64_t chunk);
  void backward(std::int64_t chunk);
  void backward_input(std::int64_t chunk);
  void backward_weight(std::int64_t chunk);
  /// A forward joined with the backward behind it.
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

/// Where a generator stands. `num_microbatches` may be more than there are.
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

/// Every forward: microbatches in groups, of each group all that pass chunk 0, then chunk 1, ….
void forward_in_groups(const GeneratorArgs& args, RankSteps& steps);
/// Every forward of two chunks in V order, none waiting once the pipeline is full.
void forward_in_v(const GeneratorArgs& args, RankSteps& steps);

}  // namespace megatron
