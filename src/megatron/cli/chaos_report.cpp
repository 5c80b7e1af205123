#include "megatron/cli/chaos_report.h"

#include <algorithm>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"

namespace megatron {
namespace {

long long wide(std::int64_t number) { return static_cast<long long>(number); }

std::string fault_text(const Fault& fault) {
  return std::string(name_of(fault.kind)) +
         format(" of rank %lld after iteration %lld", wide(fault.rank), wide(fault.iteration));
}

/// Returns the first step of the broken run that printed something else than the reference; "" if
/// there is none.
std::string first_difference(const ChaosResult& result) {
  for (const auto& [iteration, runs] : result.broken.steps) {
    const auto expected = result.reference.steps.find(iteration);
    if (expected == result.reference.steps.end())
      return format("iteration %lld is not in the run without faults", wide(iteration));
    const LoggedStep& right = expected->second.front();
    for (const LoggedStep& step : runs) {
      if (step.may_be_wrong) continue;
      if (step.loss != right.loss)
        return format("the loss of iteration %lld is %s, without faults %s", wide(iteration),
                      step.loss.c_str(), right.loss.c_str());
      if (step.grad_norm != right.grad_norm)
        return format("the grad norm of iteration %lld is %s, without faults %s", wide(iteration),
                      step.grad_norm.c_str(), right.grad_norm.c_str());
    }
  }
  return "";
}

/// Returns whether a run of the step counts that is that of the reference.
bool has_right_run(const std::vector<LoggedStep>& runs, const LoggedStep& right) {
  return std::ranges::any_of(runs, [&](const LoggedStep& step) {
    return !step.may_be_wrong || (step.loss == right.loss && step.grad_norm == right.grad_norm);
  });
}

std::string fault_row(const FaultOutcome& outcome) {
  std::string row = format("  %-12s %5lld %10lld", name_of(outcome.fault.kind),
                           wide(outcome.fault.rank), wide(outcome.fault.iteration));
  if (!outcome.has_happened) return row + "  did not happen\n";
  row += outcome.recovery_s ? format("  %16.2f s", *outcome.recovery_s) : format("  %18s", "never");
  return row + format("  %15lld\n", wide(outcome.repeated_steps));
}

}  // namespace

std::vector<std::string> problems_of(const ChaosResult& result) {
  std::vector<std::string> problems;
  const ChaosOutcome& broken = result.broken;
  if (broken.hung) problems.emplace_back("the run hung and was killed");
  if (!broken.hung && broken.code != 0)
    problems.push_back(format("the run ended with exit code %d", broken.code));
  for (const FaultOutcome& outcome : broken.faults) {
    if (outcome.is_unnoticed)
      problems.push_back("the " + fault_text(outcome.fault) +
                         " was not noticed: the ranks were not started again");
    else if (outcome.has_happened && !outcome.recovery_s)
      problems.push_back("no step was finished after the " + fault_text(outcome.fault));
  }
  const bool is_untested =
      !broken.faults.empty() && std::ranges::none_of(broken.faults, &FaultOutcome::has_happened);
  if (is_untested && problems.empty())
    problems.emplace_back("no fault happened: the run is too short, or its ranks were not found");
  for (const auto& [iteration, step] : result.reference.steps) {
    const auto runs = broken.steps.find(iteration);
    if (runs != broken.steps.end() && has_right_run(runs->second, step.front())) continue;
    problems.push_back(format("iteration %lld is missing", wide(iteration)));
    break;
  }
  if (const std::string difference = first_difference(result); !difference.empty())
    problems.push_back(difference);
  if (!result.checkpoint_difference.empty())
    problems.push_back("the last checkpoints differ: " + result.checkpoint_difference);
  return problems;
}

std::string chaos_text(const ChaosResult& result) {
  std::string text =
      format("chaos, seed %llu: %zu faults in %lld steps on %lld ranks\n",
             static_cast<unsigned long long>(result.seed), result.broken.faults.size(),
             wide(result.train_iters), wide(result.num_ranks));
  text += format("  %-12s %5s %10s  %18s  %15s\n", "fault", "rank", "iteration", "until next step",
                 "steps repeated");
  for (const FaultOutcome& outcome : result.broken.faults) text += fault_row(outcome);
  text += format("  %.1f s without faults, %.1f s with them\n", result.reference.seconds,
                 result.broken.seconds);
  const auto num_missed =
      std::ranges::count(result.broken.faults, false, &FaultOutcome::has_happened) +
      result.num_wanted - std::ssize(result.broken.faults);
  if (num_missed > 0)
    text += format(
        "  note: %lld of %lld faults did not happen: the run is too short for them, no save met a "
        "full disk, or its ranks have no such connection (--cpu-transport gloo)\n",
        wide(num_missed), wide(result.num_wanted));
  const std::vector<std::string> problems = problems_of(result);
  for (const std::string& problem : problems) text += "wrong: " + problem + "\n";
  if (problems.empty())
    text += format(
        "right: the run ended, and its %lld losses and its last checkpoint are those of the run "
        "without faults\n",
        wide(result.train_iters));
  return text;
}

std::string chaos_json(const ChaosResult& result) {
  JsonText faults = JsonText::array();
  for (const FaultOutcome& outcome : result.broken.faults) {
    faults.push_back({{"kind", name_of(outcome.fault.kind)},
                      {"rank", outcome.fault.rank},
                      {"iteration", outcome.fault.iteration},
                      {"step_part", outcome.fault.step_part},
                      {"happened", outcome.has_happened},
                      {"recovery_s", outcome.recovery_s},
                      {"repeated_steps", outcome.repeated_steps},
                      {"unnoticed", outcome.is_unnoticed}});
  }
  const std::vector<std::string> problems = problems_of(result);
  const JsonText json{{"right", problems.empty()},
                      {"seed", result.seed},
                      {"steps", result.train_iters},
                      {"ranks", result.num_ranks},
                      {"seconds_without_faults", result.reference.seconds},
                      {"seconds", result.broken.seconds},
                      {"faults", faults},
                      {"problems", problems}};
  return json.dump() + "\n";
}

}  // namespace megatron
