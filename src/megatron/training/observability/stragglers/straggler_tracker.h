// Keeps the times of all ranks over the last steps, finds the ranks that are slower than their
// peers, and formats what --log-straggler prints. It works on numbers alone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/training/observability/stragglers/own_times.h"
#include "megatron/training/observability/stragglers/peer_comparison.h"

namespace megatron {

/// Where a rank is. Ranks with the same stage of the pipeline do the same work.
struct RankPlace {
  std::int64_t stage = 0;
  std::string host;
};

/// Times of consecutive steps: `ranks[rank][step]`.
struct GatheredTimes {
  std::vector<std::int64_t> iterations;
  std::vector<std::vector<OwnTimes>> ranks;
};

class StragglerTracker {
 public:
  /// Number of the latest steps that are compared.
  static constexpr std::size_t kWindow = 15;

  /// `ranks` holds the places of all ranks, and the reports show the `minmax_count` fastest and
  /// slowest of them.
  StragglerTracker(std::vector<RankPlace> ranks, std::size_t minmax_count)
      : places_(std::move(ranks)), minmax_count_(minmax_count) {}

  /// Returns whether any rank has a peer.
  bool has_peers() const;
  /// Adds the steps since the last call. Returns their mean times and the ranks that are slow now.
  StragglerMetrics add(const GatheredTimes& times);
  /// Returns one line for each rank that became slow, or slow in another part, or is no longer slow
  /// since the last call.
  std::vector<std::string> take_changes();
  /// Returns the line of the fastest and slowest ranks over the steps since the last call; "" if
  /// there were none.
  std::string take_report();
  /// Forgets all times and slow ranks.
  void clear();

 private:
  using Ranks = std::vector<std::size_t>;

  void append(const GatheredTimes& times);
  std::map<std::int64_t, Ranks> stages() const;
  std::vector<PeerComparison> compare(const Ranks& ranks, std::span<const StepPart> parts) const;
  bool was_slow(std::int64_t rank, const std::string& part) const;
  /// Returns the slow ranks among those of one stage, by rank.
  std::map<std::int64_t, Straggler> find_in(const Ranks& peers) const;
  std::vector<PartTimes> part_times(const std::vector<OwnTimes>& sums, double steps) const;
  double step_seconds(const Ranks& ranks) const;
  void note_changes(const std::map<std::int64_t, Straggler>& now);
  std::string slow_line(const Straggler& straggler) const;
  std::string cause(std::int64_t rank) const;
  std::string window_text() const;

  std::vector<RankPlace> places_;
  std::size_t minmax_count_;
  std::deque<std::int64_t> iterations_;            ///< of the window
  std::vector<std::deque<OwnTimes>> window_;       ///< [rank][step]
  std::vector<OwnTimes> since_report_;             ///< sums over the steps, of each rank
  std::vector<std::int64_t> reported_iterations_;  ///< of these sums
  std::map<std::int64_t, Straggler> slow_;
  std::vector<std::string> changes_;
};

}  // namespace megatron
