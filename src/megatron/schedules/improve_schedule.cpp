// Simulated annealing over the critical path, as in job-shop scheduling. Only swapping two steps
// that run back to back on one rank can shorten the longest chain of steps (van Laarhoven, Aarts
// and Lenstra 1992).
#include "megatron/schedules/improve_schedule.h"

#include <algorithm>
#include <optional>
#include <random>

namespace megatron {
namespace {

constexpr double kSlack = 1e-9;
constexpr int kMaxMoveLength = 6;

struct StepIndex {
  std::size_t rank = 0, index = 0;
};

bool has_weights(StepKind kind) {
  return kind == StepKind::backward || kind == StepKind::backward_weight;
}

/// Returns whether the order of two steps of a rank is fixed: they have the same microbatch, or the
/// same kind, since microbatches run in order.
bool is_ordered(const ScheduleStep& a, const ScheduleStep& b) {
  if (a.chunk != b.chunk) return false;
  return a.microbatch == b.microbatch || a.kind == b.kind ||
         (is_backward(a.kind) && is_backward(b.kind)) ||
         (has_weights(a.kind) && has_weights(b.kind));
}

class Annealer {
 public:
  Annealer(const Schedule& schedule, const CostModel& costs, double activation_limit)
      : current_(schedule), costs_(costs), limit_(activation_limit), best_(schedule) {
    run_ = simulate(current_, costs_);
    best_s_ = run_.makespan_s;
    for (const auto& steps : schedule.ranks) {
      for (const ScheduleStep& step : steps) has_joined_ = has_joined_ || step.joins_next;
    }
    forwards_.resize(costs.stages.size() * static_cast<std::size_t>(schedule.num_microbatches));
    backwards_ = forwards_;
  }

  Schedule run(std::int64_t max_evaluations) {
    const double bound = makespan_lower_bound(current_, costs_);
    const double initial_temperature = 0.5 * mean_step();
    bool is_known = false;
    for (std::int64_t i = 0; i < max_evaluations && !has_joined_ && best_s_ > bound * (1 + kSlack);
         ++i) {
      if (!is_known) find_critical_path();
      const double cooling = 1 - static_cast<double>(i) / static_cast<double>(max_evaluations);
      is_known = !try_move(initial_temperature * cooling * cooling);
      if (is_known && path_.empty()) break;
    }
    return std::move(best_);
  }

 private:
  std::size_t stage(const StepIndex& place) const {
    return static_cast<std::size_t>(
        current_.stage_of(static_cast<std::int64_t>(place.rank), step(place).chunk));
  }
  const ScheduleStep& step(const StepIndex& place) const {
    return current_.ranks[place.rank][place.index];
  }
  const StepSpan& span(const StepIndex& place) const { return run_.spans[place.rank][place.index]; }
  StepIndex& entry(std::vector<StepIndex>& places, std::size_t stage,
                   std::int32_t microbatch) const {
    return places[stage * static_cast<std::size_t>(current_.num_microbatches) +
                  static_cast<std::size_t>(microbatch)];
  }

  double mean_step() const {
    double busy = 0, count = 0;
    for (const double rank : run_.busy_s) busy += rank;
    for (const auto& steps : current_.ranks) count += static_cast<double>(steps.size());
    return busy / std::max(count, 1.0);
  }

  /// Walks back from the last end and records each step that waited for the one before it on its
  /// rank.
  void find_critical_path() {
    StepIndex at;
    for (std::size_t rank = 0; rank < current_.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < current_.ranks[rank].size(); ++i) {
        const StepIndex place{rank, i};
        const StepKind kind = step(place).kind;
        if (kind == StepKind::forward)
          entry(forwards_, stage(place), step(place).microbatch) = place;
        if (is_backward(kind)) entry(backwards_, stage(place), step(place).microbatch) = place;
        if (span(place).end_s > span(at).end_s) at = place;
      }
    }
    path_.clear();
    for (std::optional<StepIndex> next = at; next; next = before(*next)) at = *next;
  }

  std::optional<StepIndex> before(const StepIndex& place) {
    const double begin = span(place).begin_s;
    if (begin <= kSlack) return std::nullopt;
    const std::optional<StepIndex> source = source_of(place);
    const bool waits_for_source = source && arrival(*source, place.rank) >= begin - kSlack;
    const StepIndex previous{place.rank, place.index - 1};
    const bool waits_for_rank = place.index > 0 && span(previous).end_s >= begin - kSlack;
    if (waits_for_rank) path_.push_back(place);
    if (waits_for_source && (!waits_for_rank || random_() % 2 == 0)) return source;
    return waits_for_rank ? std::optional(previous) : std::nullopt;
  }

  std::optional<StepIndex> source_of(const StepIndex& place) {
    const std::size_t at = stage(place);
    const ScheduleStep& it = step(place);
    if (it.kind == StepKind::forward)
      return at > 0 ? std::optional(entry(forwards_, at - 1, it.microbatch)) : std::nullopt;
    if (is_backward(it.kind) && at + 1 < costs_.stages.size())
      return entry(backwards_, at + 1, it.microbatch);
    return std::nullopt;
  }
  double arrival(const StepIndex& from, std::size_t rank) const {
    return span(from).end_s + (from.rank == rank ? 0 : costs_.message_s);
  }

  /// Moves a step of the path before some earlier steps, or an earlier step behind it. Returns
  /// false when the schedule is unchanged.
  bool try_move(double temperature) {
    while (!path_.empty()) {
      const std::size_t pick = random_() % path_.size();
      const StepIndex place = path_[pick];
      std::size_t length = 1;
      while (length < kMaxMoveLength && random_() % 2 == 0) ++length;
      const bool goes_back = random_() % 2 == 0;
      const std::size_t from = goes_back ? place.index : place.index - 1;
      const std::size_t to =
          goes_back ? reach_back(place.rank, from, length) : reach_forth(place.rank, from, length);
      if (to == from) {
        path_[pick] = path_.back();
        path_.pop_back();
        continue;
      }
      move(place.rank, from, to);
      if (accept(temperature)) return true;
      move(place.rank, to, from);
      return false;
    }
    return false;
  }

  std::size_t reach_back(std::size_t rank, std::size_t from, std::size_t length) const {
    const auto& steps = current_.ranks[rank];
    std::size_t to = from;
    while (to > 0 && from - to < length && !is_ordered(steps[to - 1], steps[from])) --to;
    return to;
  }
  std::size_t reach_forth(std::size_t rank, std::size_t from, std::size_t length) const {
    const auto& steps = current_.ranks[rank];
    std::size_t to = from;
    while (to + 1 < steps.size() && to - from < length && !is_ordered(steps[from], steps[to + 1]))
      ++to;
    return to;
  }
  void move(std::size_t rank, std::size_t from, std::size_t to) {
    const auto begin = current_.ranks[rank].begin();
    const auto at = [&](std::size_t index) { return begin + static_cast<std::ptrdiff_t>(index); };
    from < to ? std::rotate(at(from), at(from + 1), at(to + 1))
              : std::rotate(at(to), at(from), at(from + 1));
  }

  bool accept(double temperature) {
    std::optional<Simulation> moved = try_simulate(current_, costs_);
    if (!moved || moved->makespan_s > run_.makespan_s + temperature + kSlack) return false;
    if (limit_ > 0 && *std::max_element(moved->peak_activation.begin(),
                                        moved->peak_activation.end()) > limit_ * (1 + kSlack))
      return false;
    run_ = *std::move(moved);
    if (run_.makespan_s < best_s_ * (1 - kSlack)) {
      best_s_ = run_.makespan_s;
      best_ = current_;
    }
    return true;
  }

  Schedule current_;
  const CostModel& costs_;
  double limit_;
  Schedule best_;
  double best_s_ = 0;
  bool has_joined_ = false;
  Simulation run_;
  std::vector<StepIndex> forwards_, backwards_;  ///< [stage, microbatch]
  /// Steps of the critical path that waited for the step before them on their rank.
  std::vector<StepIndex> path_;
  std::mt19937_64 random_{1};
};

/// Returns the steps of a rank with every B that its W follows directly fused into one backward.
std::vector<ScheduleStep> fused(const std::vector<ScheduleStep>& steps) {
  std::vector<ScheduleStep> result;
  for (const ScheduleStep& step : steps) {
    if (step.kind == StepKind::backward_weight && !result.empty() &&
        result.back().kind == StepKind::backward_input &&
        result.back().microbatch == step.microbatch && result.back().chunk == step.chunk) {
      result.back().kind = StepKind::backward;
    } else {
      result.push_back(step);
    }
  }
  return result;
}

}  // namespace

double makespan_lower_bound(const Schedule& shape, const CostModel& costs) {
  const auto rank_at = [&](std::size_t stage) {
    return static_cast<std::size_t>(shape.rank_of(static_cast<std::int64_t>(stage)));
  };
  const auto ranks = static_cast<std::size_t>(shape.num_ranks);
  const double microbatches = static_cast<double>(shape.num_microbatches);
  std::vector<double> first(ranks, -1), last(ranks, 0), urgent(ranks, 0), work(ranks, 0);
  double way_down = 0, way_up = 0;
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const std::size_t rank = rank_at(i);
    const StageCost& stage = costs.stages[i];
    const double message_s = i > 0 && rank != rank_at(i - 1) ? costs.message_s : 0;
    way_down += message_s, way_up += message_s;
    if (first[rank] < 0) first[rank] = way_down, last[rank] = way_up;
    way_down += stage.forward_s, way_up += stage.backward_input_s;
    urgent[rank] += microbatches * (stage.forward_s + stage.backward_input_s);
    work[rank] +=
        microbatches * (stage.forward_s + stage.backward_input_s + stage.backward_weight_s);
  }
  double bound = way_down + way_up;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    bound = std::max({bound, first[rank] + work[rank], first[rank] + urgent[rank] + last[rank]});
  return bound;
}

Schedule improve_schedule(const Schedule& schedule, const CostModel& costs, double activation_limit,
                          std::int64_t max_evaluations) {
  return Annealer(schedule, costs, activation_limit).run(max_evaluations);
}

Schedule fuse_backwards(const Schedule& schedule, const CostModel& costs) {
  const double allowed_s = simulate(schedule, costs).makespan_s * (1 + kSlack);
  Schedule result = schedule;
  for (auto& steps : result.ranks) {
    std::vector<ScheduleStep> whole = fused(steps);
    if (whole.size() == steps.size()) continue;
    std::swap(steps, whole);
    if (simulate(result, costs).makespan_s > allowed_s) std::swap(steps, whole);
  }
  return result;
}

}  // namespace megatron
