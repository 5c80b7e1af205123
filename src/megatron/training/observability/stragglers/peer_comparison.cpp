#include "megatron/training/observability/stragglers/peer_comparison.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatron/base/median.h"

namespace megatron {
namespace {

constexpr double kLeastTime = 1e-7;  ///< for ratios, in seconds

/// Returns the median of the ascending numbers without the one at `left_out`; of an even count, the
/// mean of the middle two.
double median_without(const std::vector<double>& ascending, std::size_t left_out) {
  const auto at = [&](std::size_t i) { return ascending[i < left_out ? i : i + 1]; };
  const std::size_t count = ascending.size() - 1, middle = count / 2;
  return count % 2 == 1 ? at(middle) : (at(middle - 1) + at(middle)) / 2;
}

/// Returns for each number the median of the others.
std::vector<double> medians_of_others(const std::vector<double>& numbers) {
  std::vector<double> ascending = numbers;
  std::ranges::sort(ascending);
  std::vector<double> medians;
  for (const double number : numbers) {
    const auto place = std::ranges::lower_bound(ascending, number) - ascending.begin();
    medians.push_back(median_without(ascending, static_cast<std::size_t>(place)));
  }
  return medians;
}

/// One rank's steps against the median of the others in the same step.
struct Steps {
  std::vector<double> own, peers, ratio, excess;

  void add(double own_s, double peers_s) {
    own.push_back(own_s);
    peers.push_back(peers_s);
    ratio.push_back(std::max(own_s, kLeastTime) / std::max(peers_s, kLeastTime));
    excess.push_back(own_s - peers_s);
  }
};

bool is_slow_in_most_steps(const std::vector<double>& ratios, const SlownessRule& rule) {
  const double least = (1 + rule.min_ratio) / 2;
  const auto slow = std::ranges::count_if(ratios, [&](double ratio) { return ratio > least; });
  return static_cast<double>(slow) >= rule.min_share_of_steps * static_cast<double>(ratios.size());
}

/// Returns the robust standard deviation of the logarithms of the ratios: 1.4826 · median absolute
/// deviation.
double deviation(const std::vector<double>& ratios) {
  std::vector<double> numbers;
  for (const double ratio : ratios) numbers.push_back(std::log(ratio));
  const double middle = median(numbers);
  for (double& number : numbers) number = std::abs(number - middle);
  return 1.4826 * median(numbers);
}

std::vector<double> without(std::vector<double> numbers, std::size_t left_out) {
  numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(left_out));
  return numbers;
}

/// Returns the logarithm of the largest ratio of a rank that chance explains. `ratios` and `noise`
/// hold the median and the deviation over the steps of every rank's ratio.
double log_ratio_by_chance(const std::vector<double>& ratios, const std::vector<double>& noise,
                           std::size_t rank, double num_steps, const SlownessRule& rule) {
  const std::vector<double> peers = without(ratios, rank);
  const double spread = peers.size() < 3 ? 0 : deviation(peers);
  const double error = std::sqrt(std::numbers::pi / 2 / num_steps) * median(without(noise, rank));
  return std::max(rule.min_deviations * spread, rule.min_standard_errors * error);
}

}  // namespace

std::vector<PeerComparison> compare_with_peers(const std::vector<std::vector<double>>& own_s,
                                               double step_s, const SlownessRule& rule) {
  std::vector<PeerComparison> result(own_s.size());
  if (own_s.size() < 2 || own_s.front().empty()) return result;
  const std::size_t num_steps = own_s.front().size();
  std::vector<Steps> steps(own_s.size());
  for (std::size_t step = 0; step < num_steps; ++step) {
    std::vector<double> times;
    for (const std::vector<double>& rank : own_s) times.push_back(rank[step]);
    const std::vector<double> peers = medians_of_others(times);
    for (std::size_t i = 0; i < times.size(); ++i) steps[i].add(times[i], peers[i]);
  }
  std::vector<double> ratios, noise;
  for (const Steps& rank : steps) {
    ratios.push_back(median(rank.ratio));
    noise.push_back(deviation(rank.ratio));
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    PeerComparison& rank = result[i];
    rank = {.own_s = median(steps[i].own),
            .peers_s = median(steps[i].peers),
            .ratio = ratios[i],
            .excess_s = median(steps[i].excess)};
    rank.is_slow = num_steps >= rule.min_steps && rank.ratio >= rule.min_ratio &&
                   rank.excess_s >= rule.min_share_of_time * step_s &&
                   is_slow_in_most_steps(steps[i].ratio, rule) &&
                   std::log(rank.ratio) >
                       log_ratio_by_chance(ratios, noise, i, static_cast<double>(num_steps), rule);
  }
  return result;
}

}  // namespace megatron
