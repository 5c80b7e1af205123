// A second opinion on schedules: runs one by queues, with ranks taking their turns at random. Shares nothing with the validator.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron::testing {

class NaiveRun {
 public:
  NaiveRun(const Schedule& schedule, unsigned seed) : x_schedule(schedule), x_random(seed), x_next(schedule.ranks.size()) {}

  /// Whether all ranks come to their end, with every stage's work done once on every microbatch, weight gradients in order, no message left over.
  bool succeeds() {
    while (move()) {
    }
    for (std::size_t rank = 0; rank < x_next.size(); ++rank) {
      if (x_next[rank] != x_schedule.ranks[rank].size()) return false;
    }
    return x_is_right && is_complete() && all_empty(x_sent) && all_empty(x_awaited);
  }

 private:
  enum class What { forward, backward, weight };
  using Work = std::tuple<What, std::int64_t, std::int64_t>;                            ///< stage, microbatch
  using Message = std::tuple<What, std::int64_t, std::int64_t>;                         ///< to this stage
  using Queues = std::map<std::pair<std::int64_t, std::int64_t>, std::deque<Message>>;  ///< by sender and receiver

  static bool all_empty(const Queues& queues) {
    return std::all_of(queues.begin(), queues.end(), [](const auto& queue) { return queue.second.empty(); });
  }

  bool is_complete() const {
    for (std::int64_t stage = 0; stage < x_schedule.num_stages(); ++stage) {
      for (std::int64_t microbatch = 0; microbatch < x_schedule.num_microbatches; ++microbatch) {
        for (const What what : {What::forward, What::backward, What::weight}) {
          if (!x_done.contains({what, stage, microbatch})) return false;
        }
      }
    }
    return true;
  }

  /// Lets one of the ranks that can do something do it.
  bool move() {
    std::vector<std::size_t> order(x_next.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), x_random);
    return std::any_of(order.begin(), order.end(), [&](std::size_t rank) { return x_is_right && step(static_cast<std::int64_t>(rank)); });
  }

  bool step(std::int64_t rank) {
    const std::vector<ScheduleStep>& steps = x_schedule.ranks[rank];
    std::size_t& next = x_next[rank];
    if (next == steps.size()) return false;
    const ScheduleStep& first = steps[next];
    if (first.chunk < 0 || first.chunk >= x_schedule.num_chunks || first.microbatch < 0 || first.microbatch >= x_schedule.num_microbatches)
      return fail();
    if (is_message(first.kind)) {
      if (first.joins_next) return fail();
      post(rank, first);
      ++next;
      return true;
    }
    const std::size_t count = first.joins_next ? 2 : 1;
    if (count == 2) {
      if (first.kind != StepKind::forward || next + 1 == steps.size() || steps[next + 1].joins_next) return fail();
      const StepKind second = steps[next + 1].kind;
      if (second != StepKind::backward && second != StepKind::backward_input) return fail();
    }
    for (std::size_t i = next; i < next + count; ++i) {
      if (!may_start(rank, steps[i])) return false;
    }
    for (std::size_t i = next; i < next + count; ++i) compute(rank, steps[i]);
    next += count;
    return true;
  }

  bool fail() { return x_is_right = false; }

  std::int64_t neighbour(std::int64_t rank, std::int64_t stage) const {
    return stage < 0 || stage >= x_schedule.num_stages() || x_schedule.rank_of(stage) == rank ? -1 : x_schedule.rank_of(stage);
  }

  void post(std::int64_t rank, const ScheduleStep& step) {
    const std::int64_t stage = x_schedule.stage_of(rank, step.chunk);
    const bool is_send = step.kind == StepKind::send_forward || step.kind == StepKind::send_backward;
    const What what = step.kind == StepKind::send_forward || step.kind == StepKind::recv_forward ? What::forward : What::backward;
    const std::int64_t far_stage = is_send == (what == What::forward) ? stage + 1 : stage - 1, other = neighbour(rank, far_stage);
    if (other < 0 || (is_send && !x_done.contains({what, stage, step.microbatch}))) {
      fail();
      return;
    }
    const std::pair pair = is_send ? std::pair(rank, other) : std::pair(other, rank);
    (is_send ? x_sent : x_awaited)[pair].push_back({what, is_send ? far_stage : stage, step.microbatch});
    if (!x_sent[pair].empty() && !x_awaited[pair].empty()) {
      if (x_sent[pair].front() != x_awaited[pair].front() || !x_arrived.insert(x_sent[pair].front()).second) fail();
      x_sent[pair].pop_front();
      x_awaited[pair].pop_front();
    }
  }

  bool has_input(std::int64_t rank, What what, std::int64_t stage, std::int64_t from, std::int64_t microbatch) const {
    if (from < 0 || from >= x_schedule.num_stages()) return true;
    return neighbour(rank, from) < 0 ? x_done.contains({what, from, microbatch}) : x_arrived.contains({what, stage, microbatch});
  }

  bool may_start(std::int64_t rank, const ScheduleStep& step) const {
    const std::int64_t stage = x_schedule.stage_of(rank, step.chunk), microbatch = step.microbatch;
    if (step.kind == StepKind::forward) return has_input(rank, What::forward, stage, stage - 1, microbatch);
    if (step.kind == StepKind::backward_weight) return x_done.contains({What::backward, stage, microbatch}) && x_split.contains({stage, microbatch});
    return x_done.contains({What::forward, stage, microbatch}) && has_input(rank, What::backward, stage, stage + 1, microbatch);
  }

  void compute(std::int64_t rank, const ScheduleStep& step) {
    const std::int64_t stage = x_schedule.stage_of(rank, step.chunk);
    const bool has_weight = step.kind == StepKind::backward || step.kind == StepKind::backward_weight;
    if (step.kind == StepKind::forward) add({What::forward, stage, step.microbatch});
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_input) add({What::backward, stage, step.microbatch});
    if (step.kind == StepKind::backward_input) x_split.insert({stage, step.microbatch});
    if (!has_weight) return;
    if (step.microbatch > 0 && !x_done.contains({What::weight, stage, step.microbatch - 1})) fail();
    add({What::weight, stage, step.microbatch});
  }

  void add(const Work& work) {
    if (!x_done.insert(work).second) fail();
  }

  const Schedule& x_schedule;
  std::mt19937 x_random;
  std::vector<std::size_t> x_next;
  std::set<Work> x_done;
  std::set<Message> x_arrived;
  std::set<std::pair<std::int64_t, std::int64_t>> x_split;  ///< stage and microbatch whose backward left its weight gradient for later
  Queues x_sent, x_awaited;
  bool x_is_right = true;
};

}  // namespace megatron::testing
