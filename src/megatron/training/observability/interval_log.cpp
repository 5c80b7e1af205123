#include "megatron/training/observability/interval_log.h"

#include <algorithm>
#include <cmath>

namespace megatron {

void IntervalLog::add(const TrainStepResult& step, double samples) {
  samples_ += samples;
  tokens_ += step.tokens;
  if (step.update.applied) {
    ++advanced_;
    loss_ += step.loss();
    const NamedLosses aux_losses = mean_losses(step.routing);
    if (aux_losses_.empty()) {
      aux_losses_ = aux_losses;
    } else {
      for (std::size_t i = 0; i < aux_losses.size(); ++i)
        aux_losses_[i].second += aux_losses[i].second;
    }
  } else {
    ++skipped_;
    if (!std::isfinite(step.loss_sum)) ++nan_;
  }
}

void IntervalLog::fill(IterationReport& report, double elapsed_s) const {
  const double count = static_cast<double>(std::max<std::int64_t>(iterations(), 1));
  report.elapsed_ms = elapsed_s * 1000 / count;
  if (advanced_ > 0) {  // skipped steps do not contribute
    report.losses = {{"lm loss", loss_ / static_cast<double>(advanced_)}};
    for (const auto& [name, sum] : aux_losses_)
      report.losses.emplace_back(name, sum / static_cast<double>(advanced_));
  }
  report.skipped_iterations = skipped_;
  report.nan_iterations = nan_;
}

}  // namespace megatron
