// Computes the summary at the head of a run's report and the data points of its charts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/metrics/report/run_log.h"

namespace megatron {

/// Rows of (title, text), in the order of the page.
using SummaryRows = std::vector<std::pair<std::string, std::string>>;

/// Returns rows about model, parameters, layout, tokens, losses, restarts, time and machine. Rows
/// without data in the log are left out.
SummaryRows summarise(const RunLog& log);

/// Returns every setting of the last start, sorted by name; empty if it recorded none.
SummaryRows last_settings(const RunLog& log);

/// A series reduced for drawing.
struct DownsampledSeries {
  Series points;
  /// Mean of the finite values in each point's interval; empty if no points were removed.
  std::vector<double> means;
};

/// Returns at most `limit` points and keeps every peak and trough: the minimum and maximum of each
/// interval. NaN counts as both.
DownsampledSeries downsample(const Series& series, std::size_t limit);

/// Returns the cumulative sum of the finite values times `factor`, at the same x.
Series cumulative_sum(const Series& series, double factor);

/// Histogram of step times.
struct Histogram {
  double first = 0, width = 0;  ///< lower edge and width of the first bin
  std::vector<std::int64_t> counts;
  double median = 0, p95 = 0, highest = 0;
  std::int64_t above = 0;  ///< number of values beyond the last bin
};

/// Returns a histogram with bins over the lowest 99 % of the finite values; nullopt if there are
/// none.
std::optional<Histogram> histogram(const std::vector<double>& values, std::size_t bins);

}  // namespace megatron
