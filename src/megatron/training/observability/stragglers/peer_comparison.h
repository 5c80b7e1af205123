// Compares the times of ranks that do the same work. A pure function of the numbers, with robust
// statistics: medians instead of means, so that neither a slow step nor a slow peer hides or
// accuses another rank.
#pragma once

#include <cstddef>
#include <vector>

namespace megatron {

/// When a rank counts as slow.
struct SlownessRule {
  /// Least median of the ratio to the peers. It is below 1.2, so that noise cannot hide a rank that
  /// takes 20 % longer.
  double min_ratio = 1.15;
  /// In this share of the steps at least, the ratio must exceed 1 + half of the excess that
  /// min_ratio asks for. Noise exceeds it in few steps, a slow rank in nearly all.
  double min_share_of_steps = 0.8;
  /// Least excess of the rank's time as a share of the step: shorter ones cost nothing.
  double min_share_of_time = 0.01;
  /// The logarithm of the ratio must exceed this many standard deviations of those of the peers,
  /// when the rank has at least three peers. Standard deviations are 1.4826 · median absolute
  /// deviation.
  double min_deviations = 3;
  /// The logarithm of the ratio must exceed this many standard errors of a median over the steps.
  /// The noise of one step is that of the peers.
  double min_standard_errors = 5;
  std::size_t min_steps = 12;
};

/// One rank against the others.
struct PeerComparison {
  double own_s = 0;     ///< median over the steps
  double peers_s = 0;   ///< median over the steps of the median of the others
  double ratio = 1;     ///< median over the steps of the ratio of the two
  double excess_s = 0;  ///< median over the steps of their difference
  bool is_slow = false;
};

/// Compares each rank with the others. `own_s[rank][step]` is the time of one part, and `step_s`
/// the time of a whole step. Every rank has equally many steps. A rank alone is never slow.
std::vector<PeerComparison> compare_with_peers(const std::vector<std::vector<double>>& own_s,
                                               double step_s, const SlownessRule& rule = {});

}  // namespace megatron
