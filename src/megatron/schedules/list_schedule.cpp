#include "megatron/schedules/list_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

namespace megatron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1e-9;

struct Choice {
  double start = kInfinity, key = kInfinity;
  StepKind kind = StepKind::forward;
  std::size_t chunk = 0;
  bool exists() const { return key < kInfinity; }
};

struct Progress {
  std::int64_t forward = 0, backward = 0, weight = 0;
};

struct RankProgress {
  double free_s = 0, held = 0, limit = kInfinity;
  std::vector<Progress> chunks;
  std::vector<ScheduleStep> steps;
  Choice choice;
  std::int64_t version = 0;  ///< Version of the choice.
};

class ListScheduler {
 public:
  ListScheduler(const SearchRequest& request, const SearchLayout& layout,
                const ListScheduleOptions& options)
      : request_(request),
        layout_(layout),
        options_(options),
        num_chunks_(static_cast<std::size_t>(layout.num_chunks)),
        ranks_(static_cast<std::size_t>(request.num_ranks)),
        forward_ends_(
            layout.costs.stages.size() * static_cast<std::size_t>(request.num_microbatches),
            kInfinity),
        backward_ends_(forward_ends_) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].chunks.resize(num_chunks_);
      ranks_[rank].limit = limit_of(rank);
      interval_s_ = std::max(interval_s_, options.injection_interval * work(rank));
    }
  }

  std::optional<Schedule> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) choose(rank);
    while (!queue_.empty()) {
      const auto [start, rank, version] = queue_.top();
      queue_.pop();
      if (version == ranks_[rank].version) commit(rank);
    }
    Schedule schedule{.name = "auto",
                      .num_ranks = request_.num_ranks,
                      .num_chunks = layout_.num_chunks,
                      .num_microbatches = request_.num_microbatches,
                      .order = layout_.order,
                      .ranks = {}};
    for (RankProgress& state : ranks_) {
      for (const Progress& chunk : state.chunks) {
        if (chunk.weight < request_.num_microbatches) return std::nullopt;
      }
      schedule.ranks.push_back(std::move(state.steps));
    }
    return schedule;
  }

 private:
  std::size_t stage(std::size_t rank, std::size_t chunk) const {
    return static_cast<std::size_t>(stage_of(layout_.order, request_.num_ranks,
                                             static_cast<std::int64_t>(rank),
                                             static_cast<std::int64_t>(chunk)));
  }
  std::size_t owner(std::size_t stage) const {
    return static_cast<std::size_t>(
        rank_of(layout_.order, request_.num_ranks, static_cast<std::int64_t>(stage)));
  }
  const StageCost& cost(std::size_t rank, std::size_t chunk) const {
    return layout_.costs.stages[stage(rank, chunk)];
  }
  double& end_of(std::vector<double>& ends, std::size_t stage, std::int64_t microbatch) {
    return ends[stage * static_cast<std::size_t>(request_.num_microbatches) +
                static_cast<std::size_t>(microbatch)];
  }
  /// Returns the most that a microbatch keeps in a chunk at any time.
  double kept(std::size_t rank, std::size_t chunk) const {
    const StageCost& stage = cost(rank, chunk);
    return options_.is_split ? std::max(stage.activation, stage.weight_gradient) : stage.activation;
  }
  double kept_from(std::size_t rank, std::size_t chunk) const {
    double sum = 0;
    for (; chunk < num_chunks_; ++chunk) sum += kept(rank, chunk);
    return sum;
  }

  /// Returns the time that one microbatch takes in all chunks of the rank.
  double work(std::size_t rank) const {
    double sum = 0;
    for (std::size_t chunk = 0; chunk < num_chunks_; ++chunk)
      sum += cost(rank, chunk).forward_s + cost(rank, chunk).backward_input_s +
             cost(rank, chunk).backward_weight_s;
    return sum;
  }

  double limit_of(std::size_t rank) const {
    const double whole = kept_from(rank, 0),
                 place = ranks_.size() > 1
                             ? static_cast<double>(rank) / static_cast<double>(ranks_.size() - 1)
                             : 0;
    const double depth =
        options_.first_depth + (options_.last_depth - options_.first_depth) * place;
    const double bound = options_.first_depth > 0 ? std::max(depth, 1.0) * whole : kInfinity;
    return std::min(bound, options_.activation_limit > 0 ? options_.activation_limit : kInfinity) *
           (1 + kSlack);
  }

  bool has_room(std::size_t rank, std::size_t chunk) const {
    const RankProgress& state = ranks_[rank];
    if (!options_.reserves_all_chunks) return state.held + kept_from(rank, chunk) <= state.limit;
    if (chunk > 0) return true;
    double held = kept_from(rank, 0);
    for (std::size_t i = 0; i < num_chunks_; ++i)
      held += kept(rank, i) * static_cast<double>(state.chunks[0].forward - state.chunks[i].weight);
    return held <= state.limit;
  }

  double arrival(std::vector<double>& ends, std::size_t from, std::size_t rank,
                 std::int64_t microbatch) {
    return end_of(ends, from, microbatch) + (owner(from) == rank ? 0 : layout_.costs.message_s);
  }

  void consider(Choice& best, Choice choice) const {
    if (choice.start == kInfinity) return;
    const auto order = [&](const Choice& c) {
      const auto chunk = static_cast<std::int64_t>(c.chunk);
      return std::tuple(c.kind == StepKind::forward           ? 1
                        : c.kind == StepKind::backward_weight ? 2
                                                              : 0,
                        options_.is_deep_first ? -chunk : chunk);
    };
    if (choice.key < best.key - kSlack ||
        (choice.key <= best.key + kSlack && (!best.exists() || order(choice) < order(best))))
      best = choice;
  }

  Choice best_choice(std::size_t rank) {
    RankProgress& state = ranks_[rank];
    Choice best;
    for (std::size_t chunk = 0; chunk < num_chunks_; ++chunk) {
      const Progress& done = state.chunks[chunk];
      const StageCost& times = cost(rank, chunk);
      const std::size_t at = stage(rank, chunk);
      if (done.backward < done.forward) {
        const double ready = at + 1 < layout_.costs.stages.size()
                                 ? arrival(backward_ends_, at + 1, rank, done.backward)
                                 : state.free_s;
        const double start = std::max(state.free_s, ready);
        consider(best, {start, start,
                        options_.is_split ? StepKind::backward_input : StepKind::backward, chunk});
      }
      if (done.forward < request_.num_microbatches && has_room(rank, chunk)) {
        const double ready = at > 0 ? arrival(forward_ends_, at - 1, rank, done.forward)
                                    : static_cast<double>(done.forward) * interval_s_;
        const double start = std::max(state.free_s, ready);
        consider(best, {start, start + options_.forward_delay * times.forward_s, StepKind::forward,
                        chunk});
      }
      if (done.weight < done.backward)
        consider(best,
                 {state.free_s, state.free_s + options_.weight_delay * times.backward_weight_s,
                  StepKind::backward_weight, chunk});
    }
    return best;
  }

  void choose(std::size_t rank) {
    RankProgress& state = ranks_[rank];
    state.choice = best_choice(rank);
    ++state.version;
    if (state.choice.exists()) queue_.emplace(state.choice.start, rank, state.version);
  }

  void commit(std::size_t rank) {
    RankProgress& state = ranks_[rank];
    const Choice choice = state.choice;
    Progress& done = state.chunks[choice.chunk];
    const StageCost& times = cost(rank, choice.chunk);
    const std::size_t at = stage(rank, choice.chunk);
    std::int64_t microbatch = 0;
    std::size_t follower = rank;
    if (choice.kind == StepKind::forward) {
      microbatch = done.forward++;
      state.free_s = choice.start + times.forward_s;
      state.held += times.activation;
      end_of(forward_ends_, at, microbatch) = state.free_s;
      if (at + 1 < layout_.costs.stages.size()) follower = owner(at + 1);
    } else if (choice.kind == StepKind::backward_weight) {
      microbatch = done.weight++;
      state.free_s = choice.start + times.backward_weight_s;
      state.held -= times.weight_gradient;
    } else {
      microbatch = done.backward++;
      state.free_s =
          choice.start + times.backward_input_s + (options_.is_split ? 0 : times.backward_weight_s);
      state.held -= times.activation - (options_.is_split ? times.weight_gradient : 0);
      if (!options_.is_split) ++done.weight;
      end_of(backward_ends_, at, microbatch) = state.free_s;
      if (at > 0) follower = owner(at - 1);
    }
    state.steps.push_back({choice.kind, static_cast<std::int32_t>(microbatch),
                           static_cast<std::int32_t>(choice.chunk)});
    choose(rank);
    if (follower != rank) choose(follower);
  }

  using Entry = std::tuple<double, std::size_t, std::int64_t>;  ///< start, rank, version

  const SearchRequest& request_;
  const SearchLayout& layout_;
  const ListScheduleOptions& options_;
  std::size_t num_chunks_;
  double interval_s_ = 0;
  std::vector<RankProgress> ranks_;
  std::vector<double> forward_ends_, backward_ends_;  ///< [stage, microbatch]
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::optional<Schedule> list_schedule(const SearchRequest& request, const SearchLayout& layout,
                                      const ListScheduleOptions& options) {
  return ListScheduler(request, layout, options).run();
}

}  // namespace megatron
