// The numbers of a run that stand at the head of its report, and the points its charts are drawn
// from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/metrics/report/run_log.h"

namespace megatron {

/// A title and its text, in the order of the page.
using SummaryRows = std::vector<std::pair<std::string, std::string>>;

/// Model, parameters, layout, tokens, losses, restarts, time, machine; rows that the log says
/// nothing about are left out.
SummaryRows summarise(const RunLog& log);

/// Every setting of the last start by name; none when it left none.
SummaryRows last_settings(const RunLog& log);

/// A series as it is drawn.
struct DownsampledSeries {
  Series points;
  std::vector<double> means;  ///< of the stretch around each point, finite values only; empty when
                              ///< the points are all there are
};

/// At most `limit` points that keep every peak and trough: the lowest and the highest of each
/// stretch. NaN counts as both.
DownsampledSeries downsample(const Series& series, std::size_t limit);

/// The running sum of the finite values, at the same x.
Series cumulative_sum(const Series& series, double factor);

/// How often steps took how long.
struct Histogram {
  double first = 0, width = 0;  ///< of the first bin
  std::vector<std::int64_t> counts;
  double median = 0, p95 = 0, highest = 0;
  std::int64_t above = 0;  ///< values beyond the last bin
};

/// Bins over the lowest 99 % of the finite values; nothing for none.
std::optional<Histogram> histogram(const std::vector<double>& values, std::size_t bins);

}  // namespace megatron
