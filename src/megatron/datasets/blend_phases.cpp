#include "megatron/datasets/blend_phases.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/words.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/blend_schedule.h"
#include "megatron/config/data_config.h"
#include "megatron/config/training_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/split.h"

namespace megatron {
namespace {

/// Returns the blend of the training data.
Blend train_blend(const DataConfig& data) {
  const DataSources sources = data_sources(data);
  if (sources.blend) return *sources.blend;
  if (sources.blend_per_split && (*sources.blend_per_split)[0])
    return *(*sources.blend_per_split)[0];
  throw UserError({"--blend-schedule has no training data to mix", "",
                   "name the sources with --data-path or --train-data-path"});
}

/// Returns the steps from iteration 0 on: before the first one, the data's own weights hold.
std::vector<BlendStep> all_steps(const Blend& blend, const DataConfig& data) {
  std::vector<BlendStep> steps = parse_blend_schedule(data.blend_schedule);
  if (steps.front().iteration == 0) return steps;
  if (!blend.weights)
    throw UserError({"--blend-schedule has no mixture before iteration " +
                         std::to_string(steps.front().iteration),
                     "the training sources have no weights",
                     "begin the schedule with 0: WEIGHT PREFIX ..., or give the sources weights"});
  steps.insert(steps.begin(),
               BlendStep{.iteration = 0, .prefixes = blend.prefixes, .weights = *blend.weights});
  return steps;
}

/// Returns the weight of each source, in the order of `sources`.
std::vector<double> weights_of(const BlendStep& step, const std::vector<std::string>& sources) {
  std::vector<double> weights(sources.size(), 0);
  for (std::size_t i = 0; i < step.prefixes.size(); ++i) {
    const auto found = std::ranges::find(sources, step.prefixes[i]);
    if (found == sources.end())
      throw UserError({"--blend-schedule, iteration " + std::to_string(step.iteration) + ": " +
                           step.prefixes[i] + " is not a source of the training data",
                       "the sources are " + joined_text(sources),
                       "add it to --data-path, or correct its name"});
    weights[static_cast<std::size_t>(found - sources.begin())] = step.weights[i];
  }
  return normalize(std::move(weights));
}

void check_sources(const std::vector<std::string>& sources) {
  if (sources.size() < 2)
    throw UserError({"--blend-schedule mixes the sources of the training data, and there is one",
                     joined_text(sources), "name all sources with --data-path"});
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (std::ranges::count(sources, sources[i]) > 1)
      throw UserError({"--blend-schedule cannot distinguish sources of one name", sources[i],
                       "name each source once in --data-path"});
}

}  // namespace

std::int64_t BlendSchedule::num_samples() const {
  std::int64_t samples = 0;
  for (const BlendPhase& phase : phases) samples += phase.span.num_samples;
  return samples;
}

std::vector<double> BlendSchedule::mean_weights() const {
  std::vector<double> means(phases.empty() ? 0 : phases[0].weights.size(), 0);
  for (const BlendPhase& phase : phases) {
    for (std::size_t i = 0; i < means.size(); ++i)
      means[i] += phase.weights[i] * static_cast<double>(phase.span.num_samples) /
                  static_cast<double>(num_samples());
  }
  return means;
}

BlendSchedule train_blend_schedule(const TrainingConfig& training, const DataConfig& data) {
  if (data.blend_schedule.empty()) return {};
  const Blend blend = train_blend(data);
  check_sources(blend.prefixes);
  const std::vector<BlendStep> steps = all_steps(blend, data);
  std::vector<std::int64_t> iterations;
  for (std::size_t i = 1; i < steps.size(); ++i) iterations.push_back(steps[i].iteration);
  const std::vector<DataPhase> spans = divide_run(training, iterations);
  BlendSchedule schedule{.sources = blend.prefixes, .phases = {}};
  for (std::size_t i = 0; i < steps.size(); ++i)
    schedule.phases.push_back(
        {.span = spans[i], .weights = weights_of(steps[i], schedule.sources)});
  // With a batch size that grows, the last batch is whole where --train-samples end within it.
  const std::int64_t taken =
      NumMicrobatchesCalculator(training).samples_after(training.train_iters);
  schedule.phases.back().span.num_samples +=
      std::max<std::int64_t>(0, taken - schedule.num_samples());
  const std::vector<double> means = schedule.mean_weights();
  for (std::size_t i = 0; i < means.size(); ++i)
    if (means[i] == 0)
      throw UserError({"--blend-schedule never draws from " + schedule.sources[i], "",
                       "leave it out of the training data, or give it a weight at some iteration"});
  return schedule;
}

std::vector<std::int64_t> samples_to_build(const std::vector<BlendPhase>& phases, double surplus) {
  std::vector<double> shares(phases.empty() ? 0 : phases[0].weights.size(), 0);
  for (const BlendPhase& phase : phases) {
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[i] += std::ceil(static_cast<double>(phase.span.num_samples) * phase.weights[i]);
  }
  std::vector<std::int64_t> samples;
  for (const double share : shares)
    samples.push_back(static_cast<std::int64_t>(std::ceil(share * (1 + surplus))));
  return samples;
}

std::string blend_phase_line(const BlendSchedule& schedule, std::size_t phase) {
  const auto& [span, weights] = schedule.phases[phase];
  std::string mixture;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0)
      mixture += (mixture.empty() ? "" : ", ") + format("%.3g ", weights[i]) + schedule.sources[i];
  }
  return "mixture " + std::to_string(span.index + 1) + " of " + std::to_string(span.count) +
         ", iterations " + std::to_string(span.begin + 1) + " to " + std::to_string(span.end) +
         ": " + mixture;
}

}  // namespace megatron
