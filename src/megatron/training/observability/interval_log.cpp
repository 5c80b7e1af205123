#include "megatron/training/observability/interval_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace megatron {

NamedLosses logged_losses(const TrainStepResult& step) {
  NamedLosses losses;
  for (const LossTotal& loss : step.losses) losses.emplace_back(loss.name, loss.mean());
  for (const auto& loss : mean_losses(step.routing)) losses.push_back(loss);
  return losses;
}

TrainedWork trained_work(const TrainStepResult& step, double samples, double seconds) {
  const auto [computed, squared] = step.computed_samples;
  const bool is_known = computed > 0;
  return {.samples = is_known ? computed : samples,
          .tokens = step.tokens(),
          .seconds = seconds,
          .squared_samples = is_known ? squared : samples};
}

TrainedWork IntervalLog::work(double seconds) const {
  TrainedWork work = work_;
  work.seconds = seconds;
  return work;
}

void IntervalLog::add(const TrainStepResult& step, double samples) {
  const TrainedWork work = trained_work(step, samples);
  work_.samples += work.samples;
  work_.tokens += work.tokens;
  *work_.squared_samples += *work.squared_samples;
  if (step.update.applied) {
    ++advanced_;
    NamedLosses losses = logged_losses(step);
    for (std::size_t i = 0; i < losses_.size(); ++i) losses[i].second += losses_[i].second;
    losses_ = std::move(losses);
  } else {
    ++skipped_;
    if (!std::ranges::all_of(
            step.losses, [](double sum) { return std::isfinite(sum); }, &LossTotal::sum))
      ++nan_;
  }
}

void IntervalLog::fill(IterationReport& report, double elapsed_s) const {
  const double count = static_cast<double>(std::max<std::int64_t>(iterations(), 1));
  report.step.elapsed_s = elapsed_s / count;
  report.step.losses.clear();
  for (const auto& [name, sum] : losses_)  // skipped steps do not contribute
    report.step.losses.emplace_back(name, sum / static_cast<double>(advanced_));
  report.skipped_iterations = skipped_;
  report.nan_iterations = nan_;
}

std::vector<AxisCommStats> CommLog::take_step() {
  ++steps_;
  std::vector<AxisCommStats> axes;
  for (const CommCount& row : counters_.take()) {
    auto axis = std::ranges::find(axes, row.axis, &AxisCommStats::axis);
    if (axis == axes.end()) axis = axes.insert(axes.end(), AxisCommStats{.axis = row.axis});
    axis->calls += row.calls;
    axis->bytes += row.bytes;
    axis->exposed_ms += row.exposed_ms;
    interval_.add(row);
  }
  return axes;
}

std::string CommLog::take_table(std::int64_t rank) {
  const std::string table = format_comm_table(interval_.take(), steps_);
  if (table.empty()) return {};
  return " communication of rank " + std::to_string(rank) + ", means of " +
         std::to_string(std::exchange(steps_, 0)) + " steps\n" + table;
}

}  // namespace megatron
