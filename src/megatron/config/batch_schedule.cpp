#include "megatron/config/batch_schedule.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "megatron/base/division.h"
#include "megatron/config/field_values.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr const char* kFlag = "--step-batch-size-schedule";
constexpr const char* kExample = "write pairs of tokens and batch size, as in \"0:768 250B:1536\"";

[[noreturn]] void refuse(const std::string& reason, const std::string& fix = kExample) {
  throw UserError({kFlag, reason, fix});
}

/// Parses a number with an optional suffix K, M, B or T and truncates it to an integer.
std::int64_t scaled_number(std::string text, const std::string& entry) {
  constexpr std::string_view kSuffixes = "KMBT";
  double factor = 1;
  const auto suffix = text.empty() ? std::string_view::npos
                                   : kSuffixes.find(static_cast<char>(
                                         std::toupper(static_cast<unsigned char>(text.back()))));
  if (suffix != std::string_view::npos) {
    factor = std::pow(1000, static_cast<double>(suffix + 1));
    text.pop_back();
  }
  try {
    const double value = number_value(text) * factor;
    if (value >= 0 && value <= static_cast<double>(kMaxSamples))
      return static_cast<std::int64_t>(value);
  } catch (const FieldError&) {
    refuse("'" + entry + "' is no pair of numbers");
  }
  refuse("'" + entry + "' has a number below 0 or too large");
}

BatchSizeStep parse_step(const std::string& entry, std::int64_t seq_length) {
  const auto colon = entry.find(':');
  if (colon == std::string::npos) refuse("'" + entry + "' has no colon");
  const std::int64_t tokens = scaled_number(entry.substr(0, colon), entry),
                     size = scaled_number(entry.substr(colon + 1), entry);
  if (size < 1 || size > kMaxSize)
    refuse("'" + entry + "': the batch size must be from 1 to " + std::to_string(kMaxSize));
  return {tokens / std::max<std::int64_t>(seq_length, 1), size};
}

}  // namespace

std::vector<BatchSizeStep> parse_batch_size_steps(const std::string& text,
                                                  std::int64_t seq_length) {
  std::string spaced = text;
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::istringstream words(spaced);
  std::vector<BatchSizeStep> steps;
  for (std::string entry; words >> entry;) steps.push_back(parse_step(entry, seq_length));
  std::ranges::stable_sort(steps, {}, &BatchSizeStep::first_sample);
  if (steps.empty()) refuse("is empty");
  if (steps[0].first_sample != 0)
    refuse("starts at sample " + std::to_string(steps[0].first_sample), "begin with 0:SIZE");
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].first_sample == steps[i - 1].first_sample)
      refuse("has two batch sizes from sample " + std::to_string(steps[i].first_sample) + " on",
             "set thresholds at least one sample apart");
    if (steps[i].batch_size < steps[i - 1].batch_size)
      refuse("falls from " + std::to_string(steps[i - 1].batch_size) + " to " +
                 std::to_string(steps[i].batch_size),
             "use increasing batch sizes");
  }
  return steps;
}

NumMicrobatchesCalculator::NumMicrobatchesCalculator(const TrainingConfig& training,
                                                     std::int64_t data_parallel_size)
    : samples_per_microbatch_(std::max<std::int64_t>(training.micro_batch_size, 1) *
                              data_parallel_size),
      final_batch_size_(training.global_batch_size > 0 ? training.global_batch_size
                                                       : samples_per_microbatch_),
      decrease_if_needed_(training.decrease_batch_size_if_needed) {
  if (!training.step_batch_size_schedule.empty()) {
    steps_ = parse_batch_size_steps(training.step_batch_size_schedule, training.seq_length);
    final_batch_size_ = steps_.back().batch_size;
  }
  if (training.rampup_batch_size.size() != 3) return;
  Ramp ramp{.start = training.rampup_batch_size[0],
            .increment = training.rampup_batch_size[1],
            .samples = training.rampup_batch_size[2]};
  const std::int64_t increments = (final_batch_size_ - ramp.start) / ramp.increment;
  if (increments < 1) return;
  if (increments > kMaxRampIncrements)
    throw UserError(
        {"--rampup-batch-size", "has more than a million increments", "choose a larger increment"});
  ramp.samples_per_increment = static_cast<double>(ramp.samples) / static_cast<double>(increments);
  ramp_ = ramp;
}

std::int64_t NumMicrobatchesCalculator::ramped_size(std::int64_t consumed_samples) const {
  if (consumed_samples > ramp_->samples) return final_batch_size_;
  const auto increments = static_cast<std::int64_t>(static_cast<double>(consumed_samples) /
                                                    ramp_->samples_per_increment);
  return std::min(ramp_->start + increments * ramp_->increment, final_batch_size_);
}

std::int64_t NumMicrobatchesCalculator::size_at(std::int64_t consumed_samples) const {
  if (ramp_) return ramped_size(consumed_samples);
  if (steps_.empty()) return final_batch_size_;
  const auto above =
      std::ranges::upper_bound(steps_, consumed_samples, {}, &BatchSizeStep::first_sample);
  return std::prev(above)->batch_size;
}

StepBatch NumMicrobatchesCalculator::at(std::int64_t consumed_samples) const {
  const std::int64_t size = size_at(consumed_samples),
                     microbatches = size / samples_per_microbatch_;
  return {.global_batch_size = size,
          .running_batch_size = decrease_if_needed_ ? microbatches * samples_per_microbatch_ : size,
          .num_microbatches = microbatches};
}

std::optional<std::int64_t> NumMicrobatchesCalculator::next_change(
    std::int64_t consumed_samples) const {
  if (!ramp_) {
    const auto above =
        std::ranges::upper_bound(steps_, consumed_samples, {}, &BatchSizeStep::first_sample);
    return above == steps_.end() ? std::nullopt : std::optional(above->first_sample);
  }
  const std::int64_t size = ramped_size(consumed_samples);
  if (size == final_batch_size_) return std::nullopt;
  // The boundary is near (increments + 1) · samples_per_increment; the rounded quotient decides.
  const std::int64_t increments = (size - ramp_->start) / ramp_->increment;
  const double boundary = static_cast<double>(increments + 1) * ramp_->samples_per_increment;
  std::int64_t next =
      std::max(consumed_samples + 1, static_cast<std::int64_t>(boundary * (1 - 1e-15)) - 1);
  while (ramped_size(next) == size) ++next;
  return next;
}

std::int64_t NumMicrobatchesCalculator::take_steps(std::int64_t& consumed, std::int64_t end) const {
  const std::int64_t size = size_at(consumed),
                     until = std::min(end, next_change(consumed).value_or(end));
  const std::int64_t steps = ceil_div(until - consumed, size);
  consumed += steps * size;
  return steps;
}

std::int64_t NumMicrobatchesCalculator::samples_after(std::int64_t iterations) const {
  std::int64_t consumed = 0;
  while (iterations > 0) {
    const std::int64_t size = size_at(consumed);
    const auto change = next_change(consumed);
    const std::int64_t steps =
        change ? std::min(iterations, ceil_div(*change - consumed, size)) : iterations;
    consumed += steps * size;
    iterations -= steps;
  }
  return consumed;
}

std::int64_t NumMicrobatchesCalculator::iterations_for(std::int64_t samples) const {
  std::int64_t consumed = 0, iterations = 0;
  if (!steps_.empty()) {
    while (consumed < samples) iterations += take_steps(consumed, samples);
    return iterations;
  }
  if (ramp_) {
    const std::int64_t last = std::min(ramp_->samples, samples);
    while (consumed <= last) iterations += take_steps(consumed, last + 1);
  }
  return iterations + std::max<std::int64_t>(0, samples - consumed) / final_batch_size_;
}

std::optional<std::int64_t> NumMicrobatchesCalculator::indivisible_size(
    std::int64_t consumed_samples) const {
  if (decrease_if_needed_) return std::nullopt;
  for (;;) {
    const std::int64_t size = size_at(consumed_samples);
    if (size % samples_per_microbatch_ != 0) return size;
    const auto change = next_change(consumed_samples);
    if (!change) return std::nullopt;
    consumed_samples += ceil_div(*change - consumed_samples, size) * size;
  }
}

}  // namespace megatron
