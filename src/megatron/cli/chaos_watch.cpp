#include "megatron/cli/chaos_watch.h"

#include <algorithm>
#include <utility>

namespace megatron {
namespace {

constexpr int kStepsOverLink = 3;           ///< after which a broken link has harmed nothing
constexpr std::int64_t kPatienceSteps = 5;  ///< during which a rank may get what is to be broken

double seconds_between(ChaosWatch::Time begin, ChaosWatch::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Returns the text between `begin` and the next " |" of a line; "" if there is none.
std::string field_of(const std::string& line, const std::string& begin) {
  const std::size_t at = line.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t from = line.find_first_not_of(' ', at + begin.size()),
                    end = line.find(" |", at);
  return from < end && end != std::string::npos ? line.substr(from, end - from) : "";
}

}  // namespace

std::optional<LoggedStep> logged_step(const std::string& line) {
  const std::size_t at = line.find("] iteration ");
  if (at == std::string::npos || line.find('/', at) == std::string::npos) return std::nullopt;
  LoggedStep step;
  const std::string number = line.substr(at + 12, line.find('/', at) - at - 12);
  if (number.find_first_not_of(" 0123456789") != std::string::npos) return std::nullopt;
  step.iteration = std::atoll(number.c_str());
  step.loss = field_of(line, "loss: ");  // the first of the objective
  step.grad_norm = field_of(line, "grad norm: ");
  return step.iteration > 0 ? std::optional(step) : std::nullopt;
}

ChaosWatch::ChaosWatch(const std::vector<Fault>& faults, Time begin)
    : begin_(begin), last_step_(begin), happened_(begin) {
  for (const Fault& fault : faults) outcome_.faults.push_back({.fault = fault});
}

bool ChaosWatch::take(const std::string& line, Time now) {
  if (line.starts_with("megatron launch: restart ")) has_restarted_ = true;
  if (line.starts_with("WARNING: saving iteration ")) has_failed_to_save_ = true;
  auto step = logged_step(line);
  if (!step) return false;
  step->may_be_wrong = weights_are_wrong();
  const Time before = std::exchange(last_step_, now);
  // A restart is no part of a step: the next fault would wait for its share of it.
  if (!is_recovering()) step_s_ = seconds_between(before, now);
  const bool is_repeated = outcome_.steps.contains(step->iteration);
  outcome_.steps[step->iteration].push_back(*step);
  furthest_ = std::max(furthest_, step->iteration);
  if (next_ > 0) note_step(is_repeated);
  return true;
}

/// Notes that a step was finished after the last fault.
void ChaosWatch::note_step(bool is_repeated) {
  FaultOutcome& last = outcome_.faults[next_ - 1];
  if (is_repeated) ++last.repeated_steps;
  if (!is_recovering()) return;
  ++steps_since_;
  if (is_active_) return;
  if (ends_the_ranks(last.fault.kind) && !has_restarted_) return;  // a step before the restart
  if (breaks_a_link(last.fault.kind) && !has_restarted_ && steps_since_ < kStepsOverLink) return;
  last.recovery_s = seconds_between(happened_, last_step_);
}

const Fault* ChaosWatch::due_fault(Time now) {
  if (is_active_ || next_ == outcome_.faults.size() || is_recovering()) return nullptr;
  const Fault& fault = outcome_.faults[next_].fault;
  if (furthest_ < fault.iteration) return nullptr;
  if (!due_) {
    const std::chrono::duration<double> delay(fault.step_part * step_s_);
    due_ = now + std::chrono::duration_cast<Time::duration>(delay);
  }
  return now >= *due_ ? &fault : nullptr;
}

void ChaosWatch::begin_fault(Time now, bool lasts) {
  outcome_.faults[next_++].has_happened = true;
  due_.reset();
  steps_since_ = 0;
  happened_ = now;
  has_restarted_ = has_failed_to_save_ = false;
  is_active_ = lasts;
}

void ChaosWatch::postpone_fault() {
  const bool is_hopeless = furthest_ - outcome_.faults[next_].fault.iteration > kPatienceSteps;
  if (is_hopeless) ++next_, due_.reset();
}

void ChaosWatch::end_fault() {
  is_active_ = false;
  if (last_fault().kind == FaultKind::full_disk && !has_failed_to_save_ && !has_restarted_)
    outcome_.faults[next_ - 1].has_happened = false;
}

/// Returns whether no step has been finished since the last fault.
bool ChaosWatch::is_recovering() const {
  return next_ > 0 && outcome_.faults[next_ - 1].has_happened &&
         !outcome_.faults[next_ - 1].recovery_s;
}

/// Returns whether the weights have a flipped bit.
bool ChaosWatch::weights_are_wrong() const {
  return is_recovering() && !has_restarted_ && last_fault().kind == FaultKind::bit_flip;
}

ChaosOutcome ChaosWatch::finish(int code, Time now) {
  outcome_.code = code;
  outcome_.seconds = seconds_between(begin_, now);
  if (code == 0 && is_active_) end_fault();
  if (code != 0 || !is_recovering()) return std::move(outcome_);
  FaultOutcome& last = outcome_.faults[next_ - 1];
  if (has_restarted_ || !ends_the_ranks(last.fault.kind)) {
    last.recovery_s = seconds_between(happened_, now);  // no step follows one during the last step
  } else if (steps_since_ == 0) {
    last.has_happened = false;  // it came after the last step, and there was nothing left to break
  } else {
    last.is_unnoticed = true;
  }
  return std::move(outcome_);
}

}  // namespace megatron
