#include "megatron/training/observability/stragglers/straggler_tracker.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/base/median.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr double kMs = 1e3;
/// A part that was slow stays so down to this ratio, so that no rank is named again and again.
constexpr double kStaysSlow = 1.1;

OwnTimes& operator+=(OwnTimes& sum, const OwnTimes& step) {
  for (std::size_t part = 0; part < kNumStepParts; ++part) sum.own_s[part] += step.own_s[part];
  sum.waited_s += step.waited_s;
  sum.cpu_s += step.cpu_s;
  sum.cpu_wait_s += step.cpu_wait_s;
  return sum;
}

double own_seconds(const OwnTimes& times) {
  double sum = 0;
  for (const double own : times.own_s) sum += own;
  return sum;
}

OwnTimes operator/(OwnTimes sum, double count) {
  for (double& own : sum.own_s) own /= count;
  sum.waited_s /= count;
  sum.cpu_s /= count;
  sum.cpu_wait_s /= count;
  return sum;
}

double compared_seconds(const OwnTimes& times) {
  double sum = 0;
  for (const StepPart part : kComparedParts) sum += times.own(part);
  return sum;
}

std::string span_text(std::int64_t first, std::int64_t last) {
  return "iterations " + std::to_string(first) + " to " + std::to_string(last);
}

std::string rank_times(const std::vector<RankTime>& ranks) {
  return joined_text(ranks, " ", [](const RankTime& rank) {
    return format("%.2fms/%lld", rank.seconds * kMs, static_cast<long long>(rank.rank));
  });
}

std::string part_text(const SlowPart& part) {
  return format("%s %.2f ms a step, %.2f times their %.2f ms", part.part.c_str(), part.own_s * kMs,
                part.ratio, part.peers_s * kMs);
}

bool has_part(const Straggler& straggler, const std::string& name) {
  return std::ranges::find(straggler.parts, name, &SlowPart::part) != straggler.parts.end();
}

/// Returns whether `now` has a part that `before` does not have.
bool has_new_part(const Straggler& now, const Straggler& before) {
  return std::ranges::any_of(now.parts,
                             [&](const SlowPart& part) { return !has_part(before, part.part); });
}

}  // namespace

std::map<std::int64_t, StragglerTracker::Ranks> StragglerTracker::stages() const {
  std::map<std::int64_t, Ranks> stages;
  for (std::size_t rank = 0; rank < places_.size(); ++rank)
    stages[places_[rank].stage].push_back(rank);
  return stages;
}

bool StragglerTracker::has_peers() const {
  return std::ranges::any_of(stages(), [](const auto& stage) { return stage.second.size() > 1; });
}

void StragglerTracker::clear() {
  iterations_.clear();
  window_.clear();
  since_report_.clear();
  reported_iterations_.clear();
  slow_.clear();
  changes_.clear();
}

void StragglerTracker::append(const GatheredTimes& times) {
  window_.resize(places_.size());
  since_report_.resize(places_.size());
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    std::deque<OwnTimes>& steps = window_[rank];
    for (const OwnTimes& step : times.ranks[rank]) {
      steps.push_back(step);
      since_report_[rank] += step;
    }
    while (steps.size() > kWindow) steps.pop_front();
  }
  std::ranges::copy(times.iterations, std::back_inserter(iterations_));
  std::ranges::copy(times.iterations, std::back_inserter(reported_iterations_));
  while (iterations_.size() > kWindow) iterations_.pop_front();
}

StragglerMetrics StragglerTracker::add(const GatheredTimes& times) {
  append(times);
  std::map<std::int64_t, Straggler> slow;
  for (const auto& [stage, ranks] : stages()) slow.merge(find_in(ranks));
  note_changes(slow);
  slow_ = std::move(slow);
  StragglerMetrics metrics{.first_iteration = times.iterations.front(),
                           .last_iteration = times.iterations.back()};
  std::vector<OwnTimes> sums(places_.size());
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    for (const OwnTimes& step : times.ranks[rank]) sums[rank] += step;
  }
  metrics.parts = part_times(sums, static_cast<double>(times.iterations.size()));
  for (const auto& [rank, straggler] : slow_) metrics.stragglers.push_back(straggler);
  return metrics;
}

/// Returns the median time of a step of the window, of the first of the ranks.
double StragglerTracker::step_seconds(const Ranks& ranks) const {
  std::vector<double> seconds;
  for (const OwnTimes& step : window_[ranks.front()])
    seconds.push_back(own_seconds(step) + step.waited_s);
  return median(seconds);
}

/// Compares the ranks by the sum over `parts` of their own times.
std::vector<PeerComparison> StragglerTracker::compare(const Ranks& ranks,
                                                      std::span<const StepPart> parts) const {
  std::vector<std::vector<double>> own_s;
  for (const std::size_t rank : ranks) {
    std::vector<double>& steps = own_s.emplace_back();
    for (const OwnTimes& step : window_[rank]) {
      double& sum = steps.emplace_back(0);
      for (const StepPart part : parts) sum += step.own(part);
    }
  }
  return compare_with_peers(own_s, step_seconds(ranks));
}

bool StragglerTracker::was_slow(std::int64_t rank, const std::string& part) const {
  const auto found = slow_.find(rank);
  return found != slow_.end() && has_part(found->second, part);
}

/// The noise of the sum of all parts is smaller than that of a part. When the sum is slow, so is
/// each part that has the ratio.
std::map<std::int64_t, Straggler> StragglerTracker::find_in(const Ranks& peers) const {
  const SlownessRule rule;
  const double least_excess_s = rule.min_share_of_time * step_seconds(peers);
  const std::vector<PeerComparison> whole = compare(peers, kComparedParts);
  std::map<std::int64_t, Straggler> found;
  for (const StepPart part : kComparedParts) {
    const std::string name = kStepPartNames[static_cast<std::size_t>(part)];
    const std::vector<PeerComparison> compared = compare(peers, {&part, 1});
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(peers[i]);
      const PeerComparison& own = compared[i];
      const bool is_part_of_slow =
          whole[i].is_slow && own.ratio >= rule.min_ratio && own.excess_s >= least_excess_s;
      const bool stays_slow = own.ratio >= kStaysSlow && was_slow(rank, name);
      if (!own.is_slow && !is_part_of_slow && !stays_slow) continue;
      Straggler& straggler = found[rank];
      straggler.rank = rank;
      straggler.host = places_[peers[i]].host;
      straggler.parts.push_back(
          {.part = name, .own_s = own.own_s, .peers_s = own.peers_s, .ratio = own.ratio});
    }
  }
  for (auto& [rank, straggler] : found)
    std::ranges::stable_sort(straggler.parts, std::ranges::greater{},
                             [](const SlowPart& part) { return part.own_s - part.peers_s; });
  return found;
}

std::vector<PartTimes> StragglerTracker::part_times(const std::vector<OwnTimes>& sums,
                                                    double steps) const {
  std::vector<PartTimes> parts;
  const auto add = [&](const char* name, const std::function<double(const OwnTimes&)>& value) {
    std::vector<RankTime> ranks;
    for (std::size_t rank = 0; rank < sums.size(); ++rank)
      ranks.push_back({static_cast<std::int64_t>(rank), value(sums[rank]) / steps});
    std::ranges::stable_sort(ranks, {}, &RankTime::seconds);
    if (ranks.back().seconds <= 0) return;
    const auto count = static_cast<std::ptrdiff_t>(std::min(minmax_count_, ranks.size()));
    parts.push_back({.part = name,
                     .fastest = {ranks.begin(), ranks.begin() + count},
                     .slowest = {ranks.end() - count, ranks.end()}});
  };
  for (std::size_t part = 0; part < kNumStepParts; ++part)
    add(kStepPartNames[part], [part](const OwnTimes& times) { return times.own_s[part]; });
  add("waiting", [](const OwnTimes& times) { return times.waited_s; });
  return parts;
}

void StragglerTracker::note_changes(const std::map<std::int64_t, Straggler>& now) {
  for (const auto& [rank, straggler] : now) {
    const auto before = slow_.find(rank);
    if (before == slow_.end() || has_new_part(straggler, before->second))
      changes_.push_back(slow_line(straggler));
  }
  for (const auto& [rank, straggler] : slow_) {
    if (!now.contains(rank))
      changes_.push_back("straggler: rank " + std::to_string(rank) + " on " + straggler.host +
                         " is no longer slower than its peers (" + window_text() + ")");
  }
}

std::string StragglerTracker::window_text() const {
  return span_text(iterations_.front(), iterations_.back());
}

std::string StragglerTracker::slow_line(const Straggler& straggler) const {
  const std::int64_t stage = places_[static_cast<std::size_t>(straggler.rank)].stage;
  const auto others = std::ranges::count(places_, stage, &RankPlace::stage) - 1;
  std::string line = "straggler: rank " + std::to_string(straggler.rank) + " on " + straggler.host +
                     " is slower than the " +
                     (others > 1 ? std::to_string(others) + " other ranks" : "other rank") +
                     " of pipeline stage " + std::to_string(stage) + ": ";
  for (const SlowPart& part : straggler.parts)
    line += (&part == straggler.parts.data() ? "" : "; ") + part_text(part);
  return line + " (medians of the wall time less the waits for other ranks, " + window_text() +
         "). " + cause(straggler.rank);
}

/// Says where the excess of a slow rank comes from, as far as the scheduler's counters of its
/// thread show it.
std::string StragglerTracker::cause(std::int64_t rank) const {
  const std::int64_t stage = places_[static_cast<std::size_t>(rank)].stage;
  const auto steps = static_cast<double>(iterations_.size());
  OwnTimes own;
  std::vector<double> peers_compared_s, peers_cpu_wait_s;
  for (std::size_t other = 0; other < places_.size(); ++other) {
    if (places_[other].stage != stage) continue;
    OwnTimes mean;
    for (const OwnTimes& step : window_[other]) mean += step;
    mean = mean / steps;
    if (static_cast<std::int64_t>(other) == rank) {
      own = mean;
    } else {
      peers_compared_s.push_back(compared_seconds(mean));
      peers_cpu_wait_s.push_back(mean.cpu_wait_s);
    }
  }
  if (own.cpu_s <= 0) return "The host has no counters of its thread.";
  const double excess_s = compared_seconds(own) - median(peers_compared_s);
  const double peers_s = median(peers_cpu_wait_s);
  if (own.cpu_wait_s - peers_s >= excess_s / 2)
    return format(
        "Its thread waited %.2f ms a step for a CPU, those of its peers %.2f ms: other "
        "processes use its CPU.",
        own.cpu_wait_s * kMs, peers_s * kMs);
  const double off_cpu_s = own_seconds(own) - own.cpu_s - own.cpu_wait_s;
  if (off_cpu_s >= excess_s / 2)
    return format(
        "For %.2f ms a step its thread did not want a CPU: it was stopped, or waited for "
        "a file or a device.",
        off_cpu_s * kMs);
  return "Its thread had a CPU all that time: the CPU is slower, or the rank has more to compute.";
}

std::vector<std::string> StragglerTracker::take_changes() { return std::exchange(changes_, {}); }

std::string StragglerTracker::take_report() {
  if (reported_iterations_.empty()) return {};
  std::string line = "own time of a step, fastest and slowest ranks, " +
                     span_text(reported_iterations_.front(), reported_iterations_.back()) + " |";
  for (const PartTimes& part :
       part_times(since_report_, static_cast<double>(reported_iterations_.size())))
    line += " " + part.part + ": " + rank_times(part.fastest) + " .. " + rank_times(part.slowest) +
            " |";
  if (has_peers()) line += " stragglers: " + std::to_string(slow_.size()) + " |";
  reported_iterations_.clear();
  since_report_.clear();
  return line;
}

}  // namespace megatron
