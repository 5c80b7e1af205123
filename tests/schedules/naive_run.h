// An independent check of schedules: runs one with queues, letting ranks advance in random order.
// It shares no code with the validator.
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
  NaiveRun(const Schedule& schedule, unsigned seed)
      : schedule_(schedule), random_(seed), next_(schedule.ranks.size()) {}

  /// Returns whether all ranks complete, with every stage's work done once for every microbatch,
  /// weight gradients in order, and no unreceived message.
  bool succeeds() {
    while (move()) {
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] != schedule_.ranks[rank].size()) return false;
    }
    return is_right_ && is_complete() && all_empty(sent_) && all_empty(awaited_);
  }

 private:
  enum class What { forward, backward, weight };
  using Work = std::tuple<What, std::int64_t, std::int64_t>;     ///< Kind, stage, microbatch.
  using Message = std::tuple<What, std::int64_t, std::int64_t>;  ///< Work that it is the input of.
  using Queues = std::map<std::pair<std::int64_t, std::int64_t>,
                          std::deque<Message>>;  ///< by sender and receiver

  static bool all_empty(const Queues& queues) {
    return std::all_of(queues.begin(), queues.end(),
                       [](const auto& queue) { return queue.second.empty(); });
  }

  bool is_complete() const {
    for (std::int64_t stage = 0; stage < schedule_.num_stages(); ++stage) {
      for (std::int64_t microbatch = 0; microbatch < schedule_.num_microbatches; ++microbatch) {
        for (const What what : {What::forward, What::backward, What::weight}) {
          if (!done_.contains({what, stage, microbatch})) return false;
        }
      }
    }
    return true;
  }

  /// Advances one of the ranks that can run a step.
  bool move() {
    std::vector<std::size_t> order(next_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    return std::any_of(order.begin(), order.end(), [&](std::size_t rank) {
      return is_right_ && step(static_cast<std::int64_t>(rank));
    });
  }

  bool step(std::int64_t rank) {
    const std::vector<ScheduleStep>& steps = schedule_.ranks[rank];
    std::size_t& next = next_[rank];
    if (next == steps.size()) return false;
    const ScheduleStep& first = steps[next];
    if (first.chunk < 0 || first.chunk >= schedule_.num_chunks || first.microbatch < 0 ||
        first.microbatch >= schedule_.num_microbatches)
      return fail();
    if (is_message(first.kind)) {
      if (first.joins_next) return fail();
      post(rank, first);
      ++next;
      return true;
    }
    const std::size_t count = first.joins_next ? 2 : 1;
    if (count == 2) {
      if (first.kind != StepKind::forward || next + 1 == steps.size() || steps[next + 1].joins_next)
        return fail();
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

  bool fail() { return is_right_ = false; }

  std::int64_t neighbour(std::int64_t rank, std::int64_t stage) const {
    return stage < 0 || stage >= schedule_.num_stages() || schedule_.rank_of(stage) == rank
               ? -1
               : schedule_.rank_of(stage);
  }

  void post(std::int64_t rank, const ScheduleStep& step) {
    const std::int64_t stage = schedule_.stage_of(rank, step.chunk);
    const bool is_send =
        step.kind == StepKind::send_forward || step.kind == StepKind::send_backward;
    const What what = step.kind == StepKind::send_forward || step.kind == StepKind::recv_forward
                          ? What::forward
                          : What::backward;
    const std::int64_t far_stage = is_send == (what == What::forward) ? stage + 1 : stage - 1,
                       other = neighbour(rank, far_stage);
    if (other < 0 || (is_send && !done_.contains({what, stage, step.microbatch}))) {
      fail();
      return;
    }
    const std::pair pair = is_send ? std::pair(rank, other) : std::pair(other, rank);
    (is_send ? sent_ : awaited_)[pair].push_back(
        {what, is_send ? far_stage : stage, step.microbatch});
    if (!sent_[pair].empty() && !awaited_[pair].empty()) {
      if (sent_[pair].front() != awaited_[pair].front() ||
          !arrived_.insert(sent_[pair].front()).second)
        fail();
      sent_[pair].pop_front();
      awaited_[pair].pop_front();
    }
  }

  bool has_input(std::int64_t rank, What what, std::int64_t stage, std::int64_t from,
                 std::int64_t microbatch) const {
    if (from < 0 || from >= schedule_.num_stages()) return true;
    return neighbour(rank, from) < 0 ? done_.contains({what, from, microbatch})
                                     : arrived_.contains({what, stage, microbatch});
  }

  bool may_start(std::int64_t rank, const ScheduleStep& step) const {
    const std::int64_t stage = schedule_.stage_of(rank, step.chunk), microbatch = step.microbatch;
    if (step.kind == StepKind::forward)
      return has_input(rank, What::forward, stage, stage - 1, microbatch);
    if (step.kind == StepKind::backward_weight)
      return done_.contains({What::backward, stage, microbatch}) &&
             split_.contains({stage, microbatch});
    return done_.contains({What::forward, stage, microbatch}) &&
           has_input(rank, What::backward, stage, stage + 1, microbatch);
  }

  void compute(std::int64_t rank, const ScheduleStep& step) {
    const std::int64_t stage = schedule_.stage_of(rank, step.chunk);
    const bool has_weight =
        step.kind == StepKind::backward || step.kind == StepKind::backward_weight;
    if (step.kind == StepKind::forward) add({What::forward, stage, step.microbatch});
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_input)
      add({What::backward, stage, step.microbatch});
    if (step.kind == StepKind::backward_input) split_.insert({stage, step.microbatch});
    if (!has_weight) return;
    if (step.microbatch > 0 && !done_.contains({What::weight, stage, step.microbatch - 1})) fail();
    add({What::weight, stage, step.microbatch});
  }

  void add(const Work& work) {
    if (!done_.insert(work).second) fail();
  }

  const Schedule& schedule_;
  std::mt19937 random_;
  std::vector<std::size_t> next_;
  std::set<Work> done_;
  std::set<Message> arrived_;
  std::set<std::pair<std::int64_t, std::int64_t>>
      split_;  ///< stage and microbatch whose backward left its weight gradient for later
  Queues sent_, awaited_;
  bool is_right_ = true;
};

}  // namespace megatron::testing
