#include "megatron/config/data_phase.h"

#include <algorithm>
#include <set>

#include "megatron/config/batch_schedule.h"

namespace megatron {
namespace {

std::int64_t num_train_samples(const TrainingConfig& training) {
  return training.train_samples > 0
             ? training.train_samples
             : NumMicrobatchesCalculator(training).samples_after(training.train_iters);
}

}  // namespace

DataPhase data_phase(const TrainingConfig& training, std::int64_t iteration) {
  const std::set<std::int64_t> transitions(training.phase_transition_iterations.begin(),
                                           training.phase_transition_iterations.end());
  DataPhase phase{.index = 0,
                  .count = static_cast<std::int64_t>(transitions.size()) + 1,
                  .begin = 0,
                  .end = training.train_iters,
                  .num_samples = 0};
  for (const std::int64_t transition : transitions) {
    if (transition > iteration) {
      phase.end = transition;
      break;
    }
    phase.begin = transition;
    ++phase.index;
  }
  const bool is_last = phase.index + 1 == phase.count;
  const std::int64_t size = training.global_batch_size;
  phase.num_samples =
      (is_last ? num_train_samples(training) : phase.end * size) - phase.begin * size;
  return phase;
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
