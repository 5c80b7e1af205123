#include "megatron/config/data_phase.h"

#include <algorithm>
#include <set>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/training_config.h"

namespace megatron {
std::vector<DataPhase> divide_run(const TrainingConfig& training,
                                  const std::vector<std::int64_t>& iterations) {
  const NumMicrobatchesCalculator batches(training);
  const std::int64_t num_samples = training.train_samples > 0
                                       ? training.train_samples
                                       : batches.samples_after(training.train_iters);
  std::set<std::int64_t> ends(iterations.begin(), iterations.end());
  std::vector<DataPhase> phases;
  std::int64_t begin = 0, first_sample = 0;
  const auto add = [&](std::int64_t end, std::int64_t end_sample) {
    phases.push_back({.index = static_cast<std::int64_t>(phases.size()),
                      .count = static_cast<std::int64_t>(ends.size()) + 1,
                      .begin = begin,
                      .end = end,
                      .num_samples = end_sample - first_sample});
    begin = end;
    first_sample = end_sample;
  };
  for (const std::int64_t end : ends) add(end, batches.samples_after(end));
  add(training.train_iters, num_samples);
  return phases;
}

DataPhase data_phase(const TrainingConfig& training, std::int64_t iteration) {
  const std::vector<DataPhase> phases = divide_run(training, training.phase_transition_iterations);
  for (const DataPhase& phase : phases)
    if (iteration < phase.end) return phase;
  return phases.back();
}

bool is_phase_transition(const TrainingConfig& training, std::int64_t iteration) {
  return std::ranges::count(training.phase_transition_iterations, iteration) > 0;
}

std::int64_t consumed_samples_in_phase(const TrainingConfig& training, std::int64_t iteration,
                                       std::int64_t consumed_samples) {
  if (training.phase_transition_iterations.empty()) return consumed_samples;
  return (iteration - data_phase(training, iteration).begin) * training.global_batch_size;
}

}  // namespace megatron
