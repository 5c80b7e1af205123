// How long the steps of a schedule take and how much they keep, from its data dependencies alone: no messages, all stages alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron::testing {

struct StepTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

struct Timing {
  std::vector<double> first, last, busy;
  std::vector<std::int64_t> peak_activations;  ///< of each rank: microbatches times chunks whose forward, but not whose weight gradient, is done
  double makespan = 0;
  bool ends = true;  ///< every rank came to its end

  double idle(std::int64_t rank) const { return last[rank] - first[rank] - busy[rank]; }
  double most_idle() const {
    double most = 0;
    for (std::size_t rank = 0; rank < last.size(); ++rank) most = std::max(most, idle(static_cast<std::int64_t>(rank)));
    return most;
  }
  std::int64_t most_activations() const { return *std::max_element(peak_activations.begin(), peak_activations.end()); }
};

class Stopwatch {
 public:
  Stopwatch(const Schedule& schedule, const StepTimes& times)
      : x_schedule(schedule),
        x_times(times),
        x_forward(schedule.num_stages() * schedule.num_microbatches, -1),
        x_backward(x_forward),
        x_now(schedule.num_ranks),
        x_next(schedule.num_ranks) {}

  Timing run() {
    const auto count = static_cast<std::size_t>(x_schedule.num_ranks);
    Timing timing{std::vector<double>(count, -1), std::vector<double>(count), std::vector<double>(count), std::vector<std::int64_t>(count)};
    std::vector<std::int64_t> kept(count);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::int64_t rank = 0; rank < x_schedule.num_ranks; ++rank) {
        while (step(rank, timing, kept[rank])) moves = true;
      }
    }
    for (std::size_t rank = 0; rank < count; ++rank) {
      timing.ends = timing.ends && x_next[rank] == x_schedule.ranks[rank].size();
      timing.last[rank] = x_now[rank];
      timing.makespan = std::max(timing.makespan, x_now[rank]);
    }
    return timing;
  }

 private:
  double& at(std::vector<double>& done, std::int64_t stage, std::int64_t microbatch) {
    return done[stage * x_schedule.num_microbatches + microbatch];
  }

  /// When a step has what it needs; below 0: not known yet.
  double ready(std::int64_t rank, const ScheduleStep& step) {
    const std::int64_t stage = x_schedule.stage_of(rank, step.chunk);
    if (step.kind == StepKind::forward) return stage == 0 ? 0 : at(x_forward, stage - 1, step.microbatch);
    if (step.kind == StepKind::backward_weight) return at(x_backward, stage, step.microbatch);
    const double own = at(x_forward, stage, step.microbatch);
    if (stage + 1 == x_schedule.num_stages() || own < 0) return own;
    const double behind = at(x_backward, stage + 1, step.microbatch);
    return behind < 0 ? behind : std::max(own, behind);
  }

  double duration(StepKind kind) const {
    switch (kind) {
      case StepKind::forward:
        return x_times.forward;
      case StepKind::backward:
        return x_times.backward_input + x_times.backward_weight;
      case StepKind::backward_input:
        return x_times.backward_input;
      default:
        return x_times.backward_weight;
    }
  }

  /// Runs the next step of a rank, or its next two when they are joined: they start together, and are done together.
  bool step(std::int64_t rank, Timing& timing, std::int64_t& kept) {
    const std::vector<ScheduleStep>& steps = x_schedule.ranks[rank];
    if (x_next[rank] == steps.size()) return false;
    const std::size_t begin = x_next[rank], end = begin + (steps[begin].joins_next ? 2 : 1);
    double start = x_now[rank], length = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double known = ready(rank, steps[i]);
      if (known < 0) return false;
      start = std::max(start, known);
      length += duration(steps[i].kind);
    }
    if (timing.first[rank] < 0) timing.first[rank] = start;
    timing.busy[rank] += length;
    x_now[rank] = start + length;
    for (std::size_t i = begin; i < end; ++i) finish(rank, steps[i], timing, kept);
    x_next[rank] = end;
    return true;
  }

  void finish(std::int64_t rank, const ScheduleStep& step, Timing& timing, std::int64_t& kept) {
    const std::int64_t stage = x_schedule.stage_of(rank, step.chunk);
    if (step.kind == StepKind::forward) {
      at(x_forward, stage, step.microbatch) = x_now[rank];
      timing.peak_activations[rank] = std::max(timing.peak_activations[rank], ++kept);
      return;
    }
    // The input gradient can leave before the weight gradient is there only if the two are steps of their own.
    if (step.kind != StepKind::backward_weight) at(x_backward, stage, step.microbatch) = x_now[rank];
    if (step.kind != StepKind::backward_input) --kept;
  }

  const Schedule& x_schedule;
  const StepTimes x_times;
  std::vector<double> x_forward, x_backward, x_now;
  std::vector<std::size_t> x_next;
};

/// Of a schedule without messages.
inline Timing time_of(const Schedule& schedule, const StepTimes& times = {}) { return Stopwatch(schedule, times).run(); }

}  // namespace megatron::testing
