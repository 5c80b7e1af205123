#include "megatron/pipeline/trace/context_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "megatron/base/format.h"
#include "megatron/base/median.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

constexpr double kMs = 1e3;

/// The axes of cp are cp itself, its two levels, and blocks of ranks that share a sequence.
bool is_of_cp(const std::string& axis) { return axis.starts_with("cp"); }

/// The ranks of each group of cp, in its order.
std::vector<std::vector<const RankTrace*>> groups_of(const std::vector<RankTrace>& ranks) {
  std::map<std::array<std::int64_t, 3>, std::vector<const RankTrace*>> groups;
  for (const RankTrace& rank : ranks) groups[{rank.pp, rank.dp, rank.tp}].push_back(&rank);
  std::vector<std::vector<const RankTrace*>> result;
  for (auto& [place, group] : groups) {
    std::ranges::sort(group, {}, &RankTrace::cp);
    result.push_back(std::move(group));
  }
  return result;
}

LinkSpeed median_link(const std::vector<RankTrace>& ranks) {
  std::vector<double> latencies, speeds;
  for (const RankTrace& rank : ranks) {
    latencies.push_back(rank.cp_link.latency_s);
    speeds.push_back(rank.cp_link.bytes_per_s);
  }
  return {.latency_s = median(std::move(latencies)), .bytes_per_s = median(std::move(speeds))};
}

class ContextReportBuilder {
 public:
  ContextReportBuilder(const std::vector<RankTrace>& ranks,
                       const std::vector<ContextLayers>& layers)
      : ranks_(ranks), layers_(layers), link_(median_link(ranks)) {
    for (const RankTrace& rank : ranks) report_.ranks.push_back({.rank = rank.rank, .cp = rank.cp});
    for (const ContextLayers& group : layers) {
      for (const ContextSteps& pass :
           {forward_steps(group.attention), backward_steps(group.attention)}) {
        for (const ContextStep& step : pass.front()) note(step);
      }
    }
  }

  ContextReport make() {
    for (const auto& group : groups_of(ranks_)) {
      for (std::size_t i = 0; i < group.front()->iterations.size(); ++i) {
        for (const RankTrace* rank : group) add_measured(*rank, rank->iterations[i].activities);
        for (const bool is_backward : {false, true}) add_rings(group, i, is_backward);
      }
    }
    const double iterations = static_cast<double>(ranks_.front().iterations.size());
    for (ContextTimes& times : report_.ranks) {
      for (double* sum : {&times.attention_s, &times.exposed_s, &times.simulated_exposed_s})
        *sum /= iterations;
    }
    report_.link = link_;
    return std::move(report_);
  }

 private:
  /// Remembers what attention exchanges under which name.
  void note(const ContextStep& step) {
    if (step.kind == ContextStepKind::collective) collective_bytes_[step.what] = step.bytes;
    if (step.kind != ContextStepKind::send) return;
    messages_.insert(step.what);
    if (step.what == "keys and values") report_.message_bytes = step.bytes;
  }

  void add_measured(const RankTrace& rank, const Activities& activities) {
    ContextTimes& times = report_.ranks[static_cast<std::size_t>(rank.rank)];
    for (const RingStep& step : activities.ring_steps)
      times.attention_s += step.end_s - step.begin_s;
    for (const CommWait& wait : activities.waits) {
      if (!is_of_cp(wait.axis)) continue;
      const auto collective = collective_bytes_.find(wait.operation + " " + wait.what);
      if (collective != collective_bytes_.end()) {
        times.simulated_exposed_s += link_.latency_s + collective->second / link_.bytes_per_s;
      } else if (!messages_.contains(wait.what)) {
        continue;
      }
      times.exposed_s += wait.end_s - wait.begin_s;
    }
  }

  /// Simulates the rings' passes of one direction with their measured times of attention.
  void add_rings(const std::vector<const RankTrace*>& group, std::size_t iteration,
                 bool is_backward) {
    std::vector<std::vector<RingPass>> passes;
    for (const RankTrace* rank : group)
      passes.push_back(ring_passes(rank->iterations[iteration].activities.ring_steps, is_backward));
    for (std::size_t pass = 0; pass < passes.front().size(); ++pass) {
      RingStepSeconds seconds;
      for (const auto& of_rank : passes) {
        if (pass >= of_rank.size()) return;
        auto& own = seconds.emplace_back();
        for (const RingStep* step : of_rank[pass]) own.push_back(step->end_s - step->begin_s);
      }
      const ContextAttention* attention = attention_of(passes.front()[pass]);
      if (attention != nullptr) add_ring(group, *attention, is_backward, seconds);
    }
  }

  /// Returns the attention of the layers with a ring of this size.
  const ContextAttention* attention_of(const RingPass& pass) const {
    for (const ContextLayers& group : layers_) {
      const ContextExchange& exchange = group.attention.exchange;
      const bool has_groups = pass.front()->axis == "cp-p2p";
      if (exchange.ring_ranks() == static_cast<std::int64_t>(pass.size()) &&
          has_groups == (exchange.head_ranks > 1))
        return &group.attention;
    }
    return nullptr;
  }

  void add_ring(const std::vector<const RankTrace*>& group, const ContextAttention& attention,
                bool is_backward, const RingStepSeconds& seconds) {
    const ContextSteps steps = is_backward ? backward_steps(attention) : forward_steps(attention);
    const ContextSimulation run =
        simulate(steps, attention.exchange, seconds,
                 {.bytes_per_s = link_.bytes_per_s, .latency_s = link_.latency_s});
    for (std::size_t i = 0; i < group.size(); ++i) {
      double& sum = report_.ranks[static_cast<std::size_t>(group[i]->rank)].simulated_exposed_s;
      for (std::size_t s = 0; s < steps[i].size(); ++s) {
        if (steps[i][s].kind != ContextStepKind::attention &&
            steps[i][s].kind != ContextStepKind::collective)
          sum += run.spans[i][s].end_s - run.spans[i][s].begin_s;
      }
    }
  }

  const std::vector<RankTrace>& ranks_;
  const std::vector<ContextLayers>& layers_;
  LinkSpeed link_;
  ContextReport report_;
  std::map<std::string, double> collective_bytes_;
  std::set<std::string> messages_;
};

}  // namespace

std::vector<RingPass> ring_passes(const std::vector<RingStep>& steps, bool is_backward) {
  std::vector<RingPass> passes;
  for (const RingStep& step : steps) {
    if (step.is_backward != is_backward) continue;
    if (step.step == 0 || passes.empty()) passes.emplace_back();
    passes.back().push_back(&step);
  }
  return passes;
}

ContextReport context_report(const std::vector<RankTrace>& ranks,
                             const std::vector<ContextLayers>& layers) {
  return ContextReportBuilder(ranks, layers).make();
}

std::string context_table(const ContextReport& report) {
  std::string text = format(" context parallelism, per iteration\n  %6s %4s %13s %11s %14s", "rank",
                            "cp", "attention ms", "exposed ms", "simulated ms");
  double exposed_s = 0, simulated_s = 0;
  for (const ContextTimes& times : report.ranks) {
    text += format("\n  %6lld %4lld %13.2f %11.2f %14.2f", static_cast<long long>(times.rank),
                   static_cast<long long>(times.cp), times.attention_s * kMs, times.exposed_s * kMs,
                   times.simulated_exposed_s * kMs);
    exposed_s += times.exposed_s;
    simulated_s += times.simulated_exposed_s;
  }
  const double ranks = static_cast<double>(report.ranks.size());
  return text + format(
                    "\n  mean exposed %.2f ms, simulated %.2f ms with a link of %.3g GB/s after "
                    "%.3g ms",
                    exposed_s / ranks * kMs, simulated_s / ranks * kMs,
                    report.link.bytes_per_s / 1e9, report.link.latency_s * kMs);
}

}  // namespace megatron
