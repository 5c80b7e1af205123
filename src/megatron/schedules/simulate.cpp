// Event-driven simulation. Ranks run as far as they can, and the end of a step wakes the rank that
// waits for it. Each step is visited a bounded number of times.
#include "megatron/schedules/simulate.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr double kNotYet = -1;

class Simulator {
 public:
  Simulator(const Schedule& schedule, const CostModel& costs)
      : schedule_(schedule),
        costs_(costs),
        forward_ends_(count(schedule.num_stages() * schedule.num_microbatches), kNotYet),
        backward_ends_(forward_ends_),
        next_(schedule.ranks.size(), 0),
        now_(schedule.ranks.size(), 0) {
    MEGATRON_CHECK(costs.stages.size() == count(schedule.num_stages()), costs.stages.size(),
                   " costs for ", schedule.num_stages(), " stages");
    result_.busy_s.assign(schedule.ranks.size(), 0);
    result_.first_s.assign(schedule.ranks.size(), kNotYet);
    result_.last_s.assign(schedule.ranks.size(), 0);
    for (const auto& steps : schedule.ranks) result_.spans.emplace_back(steps.size());
  }

  /// Returns nothing when ranks deadlock.
  std::optional<Simulation> run() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) woken_.push_back(rank);
    while (!woken_.empty()) {
      const std::size_t rank = woken_.back();
      woken_.pop_back();
      advance(rank);
    }
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      if (next_[rank] != schedule_.ranks[rank].size()) return std::nullopt;
      result_.first_s[rank] = std::max(result_.first_s[rank], 0.0);
      result_.makespan_s = std::max(result_.makespan_s, result_.last_s[rank]);
      result_.peak_activation.push_back(peak_activation(rank));
    }
    return std::move(result_);
  }

 private:
  static std::size_t count(std::int64_t number) { return static_cast<std::size_t>(number); }
  std::size_t stage_of(std::size_t rank, const ScheduleStep& step) const {
    return count(schedule_.stage_of(static_cast<std::int64_t>(rank), step.chunk));
  }
  std::size_t rank_of(std::size_t stage) const {
    return count(schedule_.rank_of(static_cast<std::int64_t>(stage)));
  }
  double& end_of(std::vector<double>& ends, std::size_t stage, const ScheduleStep& step) const {
    return ends[stage * count(schedule_.num_microbatches) + count(step.microbatch)];
  }

  void advance(std::size_t rank) {
    const auto& steps = schedule_.ranks[rank];
    while (next_[rank] < steps.size()) {
      const std::size_t at = next_[rank];
      if (is_message(steps[at].kind)) {
        result_.spans[rank][at] = {now_[rank], now_[rank]};
        ++next_[rank];
      } else if (!compute(rank, at)) {
        return;
      }
    }
  }

  /// Runs the step at `at` and the one joined with it. Returns false when an input is missing.
  bool compute(std::size_t rank, std::size_t at) {
    const auto& steps = schedule_.ranks[rank];
    const std::size_t last = steps[at].joins_next ? next_computing(steps, at + 1) : at;
    const double ready = input_of(rank, steps[at]);
    const double joined_ready = last == at ? ready : input_of(rank, steps[last]);
    if (ready == kNotYet || joined_ready == kNotYet) return false;
    const double begin = std::max({now_[rank], ready, joined_ready});
    const double duration =
        last == at ? time_of(rank, steps[at])
                   : costs_.joined * (time_of(rank, steps[at]) + time_of(rank, steps[last]));
    now_[rank] = begin + duration;
    result_.busy_s[rank] += duration;
    result_.last_s[rank] = now_[rank];
    if (result_.first_s[rank] == kNotYet) result_.first_s[rank] = begin;
    for (std::size_t i = at; i <= last; ++i)
      result_.spans[rank][i] = {is_message(steps[i].kind) ? now_[rank] : begin, now_[rank]};
    next_[rank] = last + 1;
    finish(rank, steps[at]);
    if (last != at) finish(rank, steps[last]);
    return true;
  }

  static std::size_t next_computing(const std::vector<ScheduleStep>& steps, std::size_t at) {
    while (at < steps.size() && is_message(steps[at].kind)) ++at;
    MEGATRON_CHECK(at < steps.size(), "step ", at, " has no next step to be joined with");
    return at;
  }

  double time_of(std::size_t rank, const ScheduleStep& step) const {
    const StageCost& cost = costs_.stages[stage_of(rank, step)];
    switch (step.kind) {
      case StepKind::forward:
        return cost.forward_s;
      case StepKind::backward:
        return cost.backward_input_s + cost.backward_weight_s;
      case StepKind::backward_input:
        return cost.backward_input_s;
      default:
        return cost.backward_weight_s;
    }
  }

  /// Returns when the step's input from the adjacent stage is available.
  double input_of(std::size_t rank, const ScheduleStep& step) {
    const std::size_t stage = stage_of(rank, step);
    if (step.kind == StepKind::forward)
      return stage == 0 ? 0 : arrival(forward_ends_, stage - 1, rank, step);
    if (!is_backward(step.kind)) return end_of(backward_ends_, stage, step);
    const double own = end_of(forward_ends_, stage, step);
    if (own == kNotYet || stage + 1 == costs_.stages.size()) return own;
    return arrival(backward_ends_, stage + 1, rank, step);
  }

  double arrival(std::vector<double>& ends, std::size_t from_stage, std::size_t rank,
                 const ScheduleStep& step) const {
    const double end = end_of(ends, from_stage, step);
    return end == kNotYet || rank_of(from_stage) == rank ? end : end + costs_.message_s;
  }

  /// Records the end of the step and wakes the rank whose step depends on it.
  void finish(std::size_t rank, const ScheduleStep& step) {
    const std::size_t stage = stage_of(rank, step);
    if (step.kind == StepKind::forward) {
      end_of(forward_ends_, stage, step) = now_[rank];
      if (stage + 1 < costs_.stages.size()) wake(rank_of(stage + 1), rank);
    } else if (is_backward(step.kind)) {
      end_of(backward_ends_, stage, step) = now_[rank];
      if (stage > 0) wake(rank_of(stage - 1), rank);
    }
  }
  void wake(std::size_t rank, std::size_t running) {
    if (rank != running) woken_.push_back(rank);
  }

  /// Returns the rank's peak. It depends only on the order of the rank's own steps. Without a
  /// backward pass nothing is kept.
  double peak_activation(std::size_t rank) const {
    const auto& steps = schedule_.ranks[rank];
    const bool keeps = std::any_of(steps.begin(), steps.end(),
                                   [](const ScheduleStep& step) { return is_backward(step.kind); });
    double held = 0, peak = 0;
    for (const ScheduleStep& step : steps) {
      if (is_message(step.kind)) continue;
      const StageCost& cost = costs_.stages[stage_of(rank, step)];
      if (step.kind == StepKind::forward) held += cost.activation;
      peak = std::max(peak, held);
      if (step.kind == StepKind::backward || (step.kind == StepKind::forward && !keeps))
        held -= cost.activation;
      if (step.kind == StepKind::backward_input) held -= cost.activation - cost.weight_gradient;
      if (step.kind == StepKind::backward_weight) held -= cost.weight_gradient;
      peak = std::max(peak, held);
    }
    return peak;
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  std::vector<double> forward_ends_, backward_ends_;  ///< [stage, microbatch]
  std::vector<std::size_t> next_;                     ///< Per rank, the index of its next step.
  std::vector<double> now_;  ///< Per rank, the end of its last computing step.
  std::vector<std::size_t> woken_;
  Simulation result_;
};

}  // namespace

CostModel uniform_costs(const Schedule& schedule, const StageCost& stage, double message_s) {
  return {.stages = std::vector<StageCost>(static_cast<std::size_t>(schedule.num_stages()), stage),
          .message_s = message_s};
}

double PipelineTimes::bubble(std::int64_t rank) const {
  return makespan_s > 0 ? 1 - busy_s[static_cast<std::size_t>(rank)] / makespan_s : 0;
}

double PipelineTimes::total_bubble() const {
  double busy = 0;
  for (const double rank : busy_s) busy += rank;
  const double length = makespan_s * static_cast<double>(busy_s.size());
  return length > 0 ? 1 - busy / length : 0;
}

std::optional<Simulation> try_simulate(const Schedule& schedule, const CostModel& costs) {
  return Simulator(schedule, costs).run();
}

Simulation simulate(const Schedule& schedule, const CostModel& costs) {
  std::optional<Simulation> run = try_simulate(schedule, costs);
  MEGATRON_CHECK(run, schedule.name, ": ranks deadlock");
  return *std::move(run);
}

}  // namespace megatron
