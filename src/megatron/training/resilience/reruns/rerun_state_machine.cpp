#include "megatron/training/resilience/reruns/rerun_state_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

/// Formats 12,345 like Python's `{:,}`.
std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

constexpr std::int64_t kReportingInterval = 2;  ///< iterations between two reports
constexpr std::int64_t kNumSamplesOfLargest = 100;

/// Returns |a − b| relative to their mean; 0 for two NaN, infinity when only one of them is NaN or
/// infinite.
double relative_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::fabs((a - b) / (a + b) * 2);
}

}  // namespace

void DeterminismStatistics::record(double difference) {
  if (difference == 0) {
    ++num_zeros_;
    return;
  }
  if (differences_.size() < capacity_)
    differences_.push_back(difference);
  else
    differences_[next_ % capacity_] = difference;
  ++next_;
  max_ = std::max(max_, difference);
}

std::string DeterminismStatistics::text() const {
  if (differences_.empty()) return grouped(num_zeros_) + " samples, all identical";
  std::vector<double> sorted = differences_;
  std::ranges::sort(sorted);
  const std::size_t total = num_zeros_ + sorted.size();
  const auto percentile = [&](double p) {
    const auto place = static_cast<std::size_t>(static_cast<double>(total) * p);
    return place >= num_zeros_ ? format("%.3E", sorted[place - num_zeros_]) : std::string("0.0");
  };
  const double average =
      std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(total);
  return grouped(total) + "/" + grouped(num_zeros_) +
         format(" total/identical samples, rel. variability: avg= %.3E, ", average) +
         "p50= " + percentile(0.5) + ", p90= " + percentile(0.9) + ", p99= " + percentile(0.99) +
         ", p99.9= " + percentile(0.999) + format(", max: %.3E", max_);
}

RerunStateMachine::RerunStateMachine(Options options)
    : options_(std::move(options)),
      tracker_(options_.tracker_filename, options_.place),
      injector_(options_.error_injection_rate, options_.error_injection_type, options_.seed) {}

void RerunStateMachine::begin(std::int64_t iteration) {
  const bool other = state_ == RerunState::will_rerun_from_checkpoint && iteration != iteration_;
  if (other) {
    options_.log("The step to rerun, iteration " + std::to_string(iteration_) +
                 ", was passed over: no diagnostic of it");
    state_ = RerunState::not_running_yet;
    injector_.set_injected(std::nullopt);
  }
  iteration_ = iteration;
}

void RerunStateMachine::clear_requests() {
  rerun_requested_ = checkpoint_requested_ = restart_again_requested_ = continue_requested_ = false;
  has_rejected_ = false;
}

bool RerunStateMachine::should_run() {
  calls_.clear();
  num_calls_ = 0;
  switch (state_) {
    case RerunState::not_running_yet:
      clear_requests();
      state_ = RerunState::initial_run;
      return true;
    case RerunState::initial_run:
      agree(rerun_requested_);
      if (!rerun_requested_) {
        state_ = RerunState::not_running_yet;
        return false;
      }
      if (options_.mode == RerunMode::validate_results)
        options_.log("Need to rerun step to check reproducibility of initial result");
      state_ = RerunState::rerunning_in_place;
      return true;
    case RerunState::rerunning_in_place:
      if (options_.mode == RerunMode::report_stats) {
        state_ = RerunState::not_running_yet;
        report_statistics();
        first_results_.clear();
        return false;
      }
      agree(checkpoint_requested_);
      if (checkpoint_requested_) state_ = RerunState::will_rerun_from_checkpoint;
      return false;
    case RerunState::will_rerun_from_checkpoint:
      state_ = RerunState::rerunning_from_checkpoint;
      return true;
    case RerunState::rerunning_from_checkpoint:
      agree(restart_again_requested_);
      agree(continue_requested_);
      if (restart_again_requested_) {
        options_.log(
            "Need to restart job from the same checkpoint because it was scheduled on the same "
            "node/GPU");
        state_ = RerunState::rerunning_again_from_checkpoint;
      } else if (continue_requested_) {
        options_.log("Continuing normal execution because failed validation was not fatal");
        state_ = RerunState::not_running_yet;
      }
      return false;
    case RerunState::rerunning_again_from_checkpoint:
      break;
  }
  MEGATRON_CHECK(false, "the step is over: the run must stop");
  return false;
}

RerunStateMachine::Verdict RerunStateMachine::verdict() {
  first_iteration_complete_ = true;
  if (options_.mode != RerunMode::validate_results) return {};
  switch (state_) {
    case RerunState::rerunning_in_place:
      options_.log(
          "Exiting now. A checkpoint at the last iteration is being saved if further examination "
          "is needed");
      state_ = RerunState::not_running_yet;
      return {.save = true, .exit = true, .exit_code = kExitFailedOnResultValidation};
    case RerunState::will_rerun_from_checkpoint:
      options_.log(
          "Saving a checkpoint and exiting now. Please resume the job from the checkpoint to rerun "
          "the last iteration and establish a diagnostic");
      return {.save = true, .exit = true, .exit_code = kExitResumeToDisambiguate};
    case RerunState::rerunning_from_checkpoint:
      options_.log(
          "Exiting now. A checkpoint at the last iteration already exists if further examination "
          "is needed");
      return {.save = false, .exit = true, .exit_code = kExitFailedOnResultValidation};
    case RerunState::rerunning_again_from_checkpoint:
      options_.log(
          "Exiting now. Please resume the job from the same checkpoint to rerun the last iteration "
          "and establish a diagnostic");
      return {.save = false, .exit = true, .exit_code = kExitResumeToDisambiguate};
    case RerunState::not_running_yet:
    case RerunState::initial_run:
      break;
  }
  return {};
}

void RerunStateMachine::validate(double result, const ResultCheck& check) {
  const Call call{check.message, ++calls_[check.message]};
  ++num_calls_;
  if (options_.mode == RerunMode::report_stats) return record_statistics(result, call);
  if (state_ == RerunState::initial_run) return validate_first_run(result, check, call);
  if (call != failed_ || !has_rejected_) return;
  if (state_ == RerunState::rerunning_in_place) judge_first_rerun(result, check);
  if (state_ == RerunState::rerunning_from_checkpoint) judge_second_rerun(result, check);
}

void RerunStateMachine::validate_first_run(double result, const ResultCheck& check,
                                           const Call& call) {
  if (rerun_requested_ || !first_iteration_complete_) return;
  const bool injected = injector_.inject(iteration_, num_calls_);
  if (injected) options_.log(injector_.announcement());
  if (!injected && !is_rejected(result, check)) return;
  failed_ = call;
  initial_result_ = result;
  rerun_requested_ = has_rejected_ = true;
  track(RerunStatus::initial_run, result, check.message);
  options_.log("Unexpected result " + result_text(result) + " on rank 0 at iteration #" +
               std::to_string(iteration_) + " invokation #" + std::to_string(call.sequence) +
               " (message='" + check.message + "')");
}

double RerunStateMachine::difference(double result) {
  const auto pretended = injector_.simulated_difference(state_);
  return pretended ? *pretended : relative_difference(initial_result_, result);
}

std::string RerunStateMachine::differing(double result) const {
  const bool is_injected = relative_difference(initial_result_, result) == 0;
  return result_text(result) + " != " + result_text(initial_result_) +
         (is_injected ? ", by the injected error" : "");
}

void RerunStateMachine::judge_first_rerun(double result, const ResultCheck& check) {
  const std::string now = result_text(result), before = result_text(initial_result_);
  if (difference(result) > check.tolerance) {
    options_.log("First rerun: unexpected result is not reproducible within the tolerance (" +
                 differing(result) + ")");
    track(RerunStatus::first_rerun_not_reproducible, result, check.message);
    log_failure("Possible transient error!");
    return;
  }
  checkpoint_requested_ = true;
  suspicious_ = options_.place;
  track(RerunStatus::first_rerun_reproducible, result, check.message);
  options_.log("First rerun: unexpected result is reproducible within the tolerance (" + now +
               " = " + before + "). Need to rerun on a different GPU to verify correctness");
}

void RerunStateMachine::judge_second_rerun(double result, const ResultCheck& check) {
  const std::string now = result_text(result), before = result_text(initial_result_);
  if (options_.place.has_alternative && options_.place.is_same_as(suspicious_)) {
    options_.log(
        "Got rescheduled on the same GPU. Need to resume again from the same checkpoint (node: " +
        suspicious_.node + ", gpu: " + std::to_string(suspicious_.device) + ")");
    restart_again_requested_ = true;
    return;
  }
  if (difference(result) > check.tolerance) {
    track(RerunStatus::second_rerun_not_reproducible, result, check.message);
    options_.log(
        "Second rerun: unexpected result is not reproducible on a different GPU, therefore was "
        "likely incorrect (" +
        differing(result) + ")");
    log_failure("Possible persistent error!");
    return;
  }
  track(RerunStatus::second_rerun_reproducible, result, check.message);
  options_.log(
      "Second rerun: unexpected result is reproducible on a different GPU, therefore it was likely "
      "correct (" +
      now + " = " + before + ")");
  log_failure("Correct result (but possible Application error) (" + check.message + ")");
  if (!check.fatal) continue_requested_ = true;
}

bool RerunStateMachine::is_rejected(double result, const ResultCheck& check) {
  switch (check.rejects) {
    case ResultCheck::Rejects::nan:
      return std::isnan(result);
    case ResultCheck::Rejects::inf:
      return std::isinf(result);
    case ResultCheck::Rejects::large:
      return is_unexpectedly_large(result, check);
  }
  return false;
}

bool RerunStateMachine::is_unexpectedly_large(double result, const ResultCheck& check) {
  const double value = std::fabs(result);
  if (!std::isfinite(value)) return false;
  RunningMax& largest = largest_[std::string(check.context)];
  if (largest.count >= kNumSamplesOfLargest) return value >= largest.value * check.threshold;
  ++largest.count;
  largest.value = std::max(largest.value, value);
  if (largest.count == kNumSamplesOfLargest)
    options_.log("Max value for " + std::string(check.context) + ": " + result_text(largest.value));
  return false;
}

void RerunStateMachine::record_statistics(double result, const Call& call) {
  if (state_ == RerunState::initial_run) {
    rerun_requested_ = true;
    first_results_[call] = result;
    return;
  }
  auto found = std::ranges::find(statistics_, call.message,
                                 &std::pair<std::string, DeterminismStatistics>::first);
  if (found == statistics_.end())
    found = statistics_.insert(statistics_.end(), {call.message, DeterminismStatistics()});
  found->second.record(relative_difference(first_results_.at(call), result));
}

void RerunStateMachine::report_statistics() {
  if (iteration_ % kReportingInterval != 0) return;
  options_.log("Stats on computation determinism in validation calls");
  for (const auto& [message, statistics] : statistics_) {
    options_.log("  From " + message + ":");
    options_.log("    " + statistics.text());
  }
}

void RerunStateMachine::log_failure(const std::string& message) {
  options_.log("Rank 0, node " + options_.place.node + ", device " +
               std::to_string(options_.place.device) + ": " + message + "!");
}

void RerunStateMachine::track(RerunStatus status, double result, const std::string& message) {
  tracker_.append(
      {.iteration = iteration_, .status = status, .result = result, .message = message});
}

JsonValue RerunStateMachine::to_json() const {
  if (state_ != RerunState::will_rerun_from_checkpoint) return {};
  Json largest = Json::object();
  for (const auto& [context, seen] : largest_)
    largest[context] = {{"count", seen.count}, {"value", seen.value}};
  return Json{
      {"iteration", iteration_},
      {"failed_message", failed_.message},
      {"failed_sequence", failed_.sequence},
      {"initial_result", result_text(initial_result_)},
      {"suspicious_node", suspicious_.node},
      {"suspicious_device", suspicious_.device},
      {"suspicious_gpus", suspicious_.gpus},
      {"injected_error",
       injector_.injected() ? Json(std::string(name_of(*injector_.injected()))) : Json(nullptr)},
      {"largest", largest}};
}

void RerunStateMachine::restore(const Json& saved, const std::string& source) {
  if (saved.is_null()) return;
  if (options_.mode == RerunMode::disabled) {
    options_.log("RerunStateMachine disabled via CLI, ignoring machine state saved in checkpoint");
    return;
  }
  options_.log("Getting RerunStateMachine state from checkpoint. Will rerun step.");
  const JsonCursor json(saved, source);
  iteration_ = json["iteration"].integer();
  failed_ = {json["failed_message"].text(), json["failed_sequence"].integer()};
  const std::string initial = json["initial_result"].text();
  initial_result_ = std::strtod(initial.c_str(), nullptr);
  suspicious_.node = json["suspicious_node"].text();
  suspicious_.device = static_cast<int>(json["suspicious_device"].integer());
  if (const auto gpus = json.find("suspicious_gpus")) suspicious_.gpus = gpus->text();
  if (const JsonCursor injected = json["injected_error"]; !injected->is_null())
    injector_.set_injected(rerun_diagnostic(injected.text()));
  const JsonCursor largest = json["largest"];
  for (const auto& [context, value] : largest.object().items())
    largest_[context] = {largest[context]["count"].integer(), largest[context]["value"].number()};
  has_rejected_ = true;
  state_ = RerunState::will_rerun_from_checkpoint;
}

}  // namespace megatron
