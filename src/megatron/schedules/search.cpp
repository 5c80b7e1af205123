#include "megatron/schedules/search.h"

#include <algorithm>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/schedules/improve_schedule.h"
#include "megatron/schedules/list_schedule.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

constexpr double kSlack = 1e-9;
constexpr const char* kAutoName = "auto";
constexpr std::int64_t kListCost = 8;  ///< Cost of list_schedule() in simulations.

void measure(ScheduleCandidate& candidate) {
  const Simulation run = simulate(candidate.schedule, candidate.costs);
  candidate.makespan_s = run.makespan_s;
  candidate.total_bubble = run.total_bubble();
  candidate.peak_activation =
      *std::max_element(run.peak_activation.begin(), run.peak_activation.end());
}

/// Prefers the faster candidate, then the one with less memory, then a named schedule.
bool is_better(const ScheduleCandidate& a, const ScheduleCandidate& b) {
  const auto is_less = [](double x, double y) { return x < y * (1 - kSlack); };
  if (is_less(a.makespan_s, b.makespan_s) || is_less(b.makespan_s, a.makespan_s))
    return a.makespan_s < b.makespan_s;
  if (is_less(a.peak_activation, b.peak_activation) ||
      is_less(b.peak_activation, a.peak_activation))
    return a.peak_activation < b.peak_activation;
  return a.schedule.name != kAutoName && b.schedule.name == kAutoName;
}

bool suits(const std::string& name, const SearchLayout& layout) {
  const std::int64_t chunks = fixed_num_chunks(name);
  if (layout.order != chunk_order_of(name)) return false;
  return chunks > 0 ? chunks == layout.num_chunks : layout.num_chunks > 1 || name != "interleaved";
}

ScheduleCandidate fixed_candidate(const SearchRequest& request, const SearchLayout& layout,
                                  const std::string& name) {
  ScheduleCandidate candidate;
  candidate.costs = layout.costs;
  const ScheduleRequest wanted{.name = name,
                               .num_ranks = request.num_ranks,
                               .num_chunks = layout.num_chunks,
                               .num_microbatches = request.num_microbatches,
                               .microbatch_group = request.microbatch_group};
  try {
    candidate.schedule = make_schedule(wanted);
    measure(candidate);
  } catch (const UserError& error) {
    candidate.schedule = {.name = name,
                          .num_ranks = request.num_ranks,
                          .num_chunks = layout.num_chunks,
                          .order = layout.order,
                          .ranks = {}};
    candidate.problem = error.parts().problem();
  }
  return candidate;
}

class ScheduleSearch {
 public:
  explicit ScheduleSearch(const SearchRequest& request)
      : request_(request), best_of_(request.layouts.size()) {}

  ScheduleCandidate run() {
    for (ScheduleCandidate& candidate : fixed_candidates(request_)) {
      const auto layout = std::find_if(request_.layouts.begin(), request_.layouts.end(),
                                       [&](const SearchLayout& it) {
                                         return it.num_chunks == candidate.schedule.num_chunks &&
                                                it.order == candidate.schedule.order;
                                       });
      spend(candidate.schedule, 1);
      if (candidate.problem.empty() && fits(candidate))
        keep(static_cast<std::size_t>(layout - request_.layouts.begin()), std::move(candidate));
    }
    for (std::size_t layout = 0; layout < request_.layouts.size(); ++layout)
      tune_list_schedules(layout);
    improve();
    ScheduleCandidate& best = *best_of_[best_layout()];
    if (best.schedule.name == kAutoName) {
      best.schedule = fuse_backwards(best.schedule, best.costs);
      measure(best);
    }
    return std::move(best);
  }

 private:
  bool fits(const ScheduleCandidate& candidate) const {
    return request_.activation_limit <= 0 ||
           candidate.peak_activation <= request_.activation_limit * (1 + kSlack);
  }

  bool keep(std::size_t layout, ScheduleCandidate candidate) {
    std::optional<ScheduleCandidate>& best = best_of_[layout];
    if (best && !is_better(candidate, *best)) return false;
    best = std::move(candidate);
    return true;
  }

  void spend(const Schedule& schedule, std::int64_t times) {
    for (const auto& steps : schedule.ranks)
      spent_ += times * static_cast<std::int64_t>(steps.size());
  }

  /// Sets one option after the other to its best value, in two passes. All layouts together use a
  /// third of the effort.
  void tune_list_schedules(std::size_t layout) {
    const auto layouts = static_cast<std::int64_t>(request_.layouts.size());
    const std::int64_t share =
        request_.effort / 3 * (static_cast<std::int64_t>(layout) + 1) / layouts;
    const auto ranks = static_cast<double>(request_.num_ranks);
    ListScheduleOptions options{.activation_limit = request_.activation_limit};
    std::optional<ScheduleCandidate> found;
    const auto attempt = [&](const ListScheduleOptions& changed) {
      if (found && spent_ >= share) return;
      std::optional<ScheduleCandidate> candidate = list(layout, changed);
      if (!candidate || (found && !is_better(*candidate, *found))) return;
      found = std::move(candidate);
      options = changed;
    };
    const auto vary = [&](auto member, const auto& values) {
      for (const auto value : values) {
        ListScheduleOptions changed = options;
        changed.*member = value;
        attempt(changed);
      }
    };
    attempt(options);
    // The least memory: one microbatch at a time, with fused backwards.
    for (const bool reserves : {false, true}) {
      ListScheduleOptions smallest{.activation_limit = request_.activation_limit,
                                   .is_split = false,
                                   .reserves_all_chunks = reserves};
      attempt(smallest);
    }
    for (int round = 0; round < 2; ++round) {
      vary_injection_interval(options, attempt);
      vary_depth(ranks, options, attempt);
      vary(&ListScheduleOptions::weight_delay, std::vector<double>{0, 0.3, 0.6, 1, 2});
      vary(&ListScheduleOptions::forward_delay, std::vector<double>{0, 0.3, 0.6, 1, 2});
      vary(&ListScheduleOptions::is_deep_first, std::vector<bool>{true, false});
      vary(&ListScheduleOptions::reserves_all_chunks, std::vector<bool>{true, false});
      vary(&ListScheduleOptions::is_split, std::vector<bool>{true, false});
    }
    if (found) keep(layout, *std::move(found));
  }

  /// Tries intervals between microbatches. Microbatches that enter at the right pace stay within a
  /// limit better than ranks that stop for it.
  template <class Attempt>
  void vary_injection_interval(const ListScheduleOptions& options, const Attempt& attempt) {
    for (const double limit : {request_.activation_limit, 1.25 * request_.activation_limit, 0.0}) {
      for (const double injection_interval :
           {0.0, 0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4}) {
        ListScheduleOptions changed = options;
        changed.activation_limit = limit;
        changed.injection_interval = injection_interval;
        attempt(changed);
      }
      if (request_.activation_limit == 0) return;
    }
  }

  template <class Attempt>
  void vary_depth(double ranks, const ListScheduleOptions& options, const Attempt& attempt) {
    for (const auto& [first, last] : {std::pair{0.0, 0.0},
                                      {ranks, 1.0},
                                      {ranks, ranks},
                                      {ranks + 1, 2.0},
                                      {1.5 * ranks, 1.5 * ranks},
                                      {2 * ranks - 1, 1.0},
                                      {2 * ranks, 2 * ranks},
                                      {3 * ranks, 3 * ranks},
                                      {ranks / 2 + 1, ranks / 2 + 1}}) {
      ListScheduleOptions changed = options;
      changed.first_depth = first;
      changed.last_depth = last;
      attempt(changed);
    }
  }

  std::optional<ScheduleCandidate> list(std::size_t layout, const ListScheduleOptions& options) {
    std::optional<Schedule> schedule = list_schedule(request_, request_.layouts[layout], options);
    spent_ += kListCost * request_.num_ranks * request_.layouts[layout].num_chunks *
              request_.num_microbatches * (options.is_split ? 3 : 2);
    if (!schedule) return std::nullopt;
    ScheduleCandidate candidate{.schedule = *std::move(schedule),
                                .costs = request_.layouts[layout].costs};
    measure(candidate);
    return fits(candidate) ? std::optional(std::move(candidate)) : std::nullopt;
  }

  /// Spends half of the remaining effort on the best schedule and half on those of other layouts.
  void improve() {
    const std::size_t first = best_layout();
    for (std::size_t i = 0; i < best_of_.size(); ++i) {
      if (!best_of_[i]) continue;
      const ScheduleCandidate& from = *best_of_[i];
      std::int64_t steps = 1;
      for (const auto& rank : from.schedule.ranks) steps += static_cast<std::int64_t>(rank.size());
      const auto others = static_cast<std::int64_t>(best_of_.size()) - 1;
      const std::int64_t left = std::max<std::int64_t>(request_.effort - spent_, 0),
                         share = others == 0  ? left
                                 : i == first ? left / 2
                                              : left / 2 / others;
      ScheduleCandidate candidate{
          .schedule =
              improve_schedule(from.schedule, from.costs, request_.activation_limit, share / steps),
          .costs = from.costs};
      candidate.schedule.name = kAutoName;
      measure(candidate);
      keep(i, std::move(candidate));
    }
  }

  std::size_t best_layout() const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < best_of_.size(); ++i) {
      if (best_of_[i] && (!best || is_better(*best_of_[i], *best_of_[*best]))) best = i;
    }
    MEGATRON_CHECK(best, "no schedule was found within an activation limit of ",
                   request_.activation_limit);
    return *best;
  }

  const SearchRequest& request_;
  std::vector<std::optional<ScheduleCandidate>> best_of_;  ///< Per layout.
  std::int64_t spent_ = 0;
};

/// Returns the smallest limit that some schedule fits. With one microbatch at a time, a rank keeps
/// the activations of all its chunks, and no schedule keeps less.
double smallest_limit(const SearchRequest& request) {
  double smallest = 0;
  for (const SearchLayout& layout : request.layouts) {
    double largest = 0;
    for (std::int64_t rank = 0; rank < request.num_ranks; ++rank) {
      double kept = 0;
      for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk)
        kept += layout.costs
                    .stages[static_cast<std::size_t>(
                        stage_of(layout.order, request.num_ranks, rank, chunk))]
                    .activation;
      largest = std::max(largest, kept);
    }
    smallest = &layout == &request.layouts.front() ? largest : std::min(smallest, largest);
  }
  return smallest;
}

}  // namespace

std::vector<ScheduleCandidate> fixed_candidates(const SearchRequest& request) {
  std::vector<ScheduleCandidate> candidates;
  for (const std::string& name : schedule_names()) {
    for (const SearchLayout& layout : request.layouts) {
      if (suits(name, layout)) candidates.push_back(fixed_candidate(request, layout, name));
    }
  }
  return candidates;
}

ScheduleCandidate search_schedule(const SearchRequest& request) {
  MEGATRON_CHECK(!request.layouts.empty(), "the search needs at least one layout");
  const double smallest = smallest_limit(request);
  if (request.activation_limit > 0 && request.activation_limit < smallest * (1 - kSlack))
    throw UserError({format("--pipeline-activation-limit %g", request.activation_limit),
                     "the limit is too small for every schedule",
                     format("use %g or more", smallest)});
  ScheduleCandidate best = ScheduleSearch(request).run();
  const auto problem = validate_schedule(with_messages(best.schedule));
  MEGATRON_CHECK(!problem, "the schedule that was found is invalid: ", *problem);
  return best;
}

}  // namespace megatron
