// Implements `megatron plan --faults`, which replays a run on hosts that fail.
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/cli/command.h"
#include "megatron/cli/fault_plan_fields.h"
#include "megatron/config/command_line.h"
#include "megatron/reliability/checkpoint_interval.h"
#include "megatron/reliability/compare_policies.h"

namespace megatron {
namespace {

constexpr double kMinute = 60, kDay = 86'400;

struct Options {
  FaultPlanOptions plan;
  std::int64_t world_size = 16384;
  bool json = false;
};

const FieldTable<Options>& table() {
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    t.field("world_size", &Options::world_size, "number of GPUs").at_least(1).at_most(10'000'000);
    t.field("json", &Options::json, "print one JSON object");
    t.include(&Options::plan, fault_plan_table());
    return t;
  }();
  return table;
}

void check(const Options& options) {
  const FaultPlanOptions& plan = options.plan;
  Problems problems;
  const std::int64_t gpus = plan.gpus_per_host * plan.hosts_per_replica;
  if (options.world_size % gpus != 0)
    problems.add({"--world-size",
                  std::to_string(options.world_size) + " is no multiple of the " +
                      std::to_string(gpus) + " GPUs of a replica",
                  "change it, --gpus-per-host or --hosts-per-replica"});
  if (plan.step_seconds <= 0) problems.add({"--step-seconds", "must be above 0", ""});
  if (plan.slow_speed <= 0 || plan.slow_speed > 1)
    problems.add({"--slow-speed", "must be above 0 and at most 1", ""});
  problems.throw_if_any();
}

ReplayedRun run_of(const Options& options) {
  const FaultPlanOptions& plan = options.plan;
  return {.seconds = plan.days * kDay,
          .hosts = options.world_size / plan.gpus_per_host,
          .gpus_per_host = plan.gpus_per_host,
          .hosts_per_replica = plan.hosts_per_replica,
          .step_s = plan.step_seconds,
          .checkpoint_interval_s = plan.checkpoint_minutes * kMinute,
          .save_s = plan.save_seconds,
          .durable_s = plan.durable_seconds,
          .slow_speed = plan.slow_speed,
          .failure_rate_scale = plan.failure_rate_scale};
}

RecoveryTimes times_of(const FaultPlanOptions& plan) {
  return {.crash_s = plan.crash_seconds,
          .timeout_s = plan.timeout_minutes * kMinute,
          .hang_s = plan.hang_seconds,
          .slowdown_by_hand_s = plan.slow_by_hand_minutes * kMinute,
          .slowdown_s = plan.slow_minutes * kMinute,
          .corruption_by_hand_s = plan.corruption_by_hand_minutes * kMinute,
          .corruption_s = plan.corruption_minutes * kMinute,
          .operator_s = plan.operator_minutes * kMinute,
          .allocation_s = plan.allocation_minutes * kMinute,
          .start_s = plan.start_seconds,
          .load_s = plan.load_seconds,
          .restart_in_process_s = plan.in_process_start_seconds,
          .peer_load_s = plan.peer_load_seconds,
          .copy_s = plan.peer_copy_seconds,
          .spare_hosts = plan.spare_hosts};
}

std::string flag_of(const FaultConstant& constant) {
  std::string flag = std::string("--") + constant.name;
  for (char& letter : flag)
    if (letter == '_') letter = '-';
  return flag;
}

std::string text_of(const Options& options, const FailureMix& mix, double mean_between_s,
                    const std::vector<PolicyResult>& results) {
  const FaultPlanOptions& plan = options.plan;
  std::string text = format(
      "%lld GPUs on %lld hosts for %g days; failures of %s: one every %.3g h; %lld replays, seed "
      "%lld\n",
      static_cast<long long>(options.world_size),
      static_cast<long long>(options.world_size / plan.gpus_per_host), plan.days, mix.name.c_str(),
      mean_between_s / 3600, static_cast<long long>(plan.replays),
      static_cast<long long>(plan.replay_seed));
  text += format("\n  %-28s %9s  %-14s  %12s  %8s\n", "effective training time, %", "median",
                 "5 to 95 of 100", "of all hosts", "restarts");
  for (const PolicyResult& result : results)
    text += format("  %-28s %9.2f  %5.2f to %5.2f  %12.2f  %8.0f\n", result.policy.name.c_str(),
                   100 * result.median, 100 * result.low, 100 * result.high,
                   100 * result.of_all_hosts, result.restarts);
  text += format("\n  %-28s", "time lost, mean, %");
  for (const char* name : kLostTimeNames) text += format(" %9s", name);
  text += "\n";
  for (const PolicyResult& result : results) {
    text += format("  %-28s", result.policy.name.c_str());
    for (const double lost : result.lost) text += format(" %9.2f", 100 * lost);
    text += "\n";
  }
  text += format("\n  a save every %g min (--checkpoint-minutes); Young's interval is %.2g min\n",
                 plan.checkpoint_minutes,
                 young_interval_s(plan.save_seconds, mean_between_s) / kMinute);
  text += "\n  taken as given:\n";
  for (const FaultConstant& constant : fault_constants()) {
    const bool is_default = plan.*constant.member == FaultPlanOptions{}.*constant.member;
    text += format("  %-28s %6g  %s\n", flag_of(constant).c_str(), plan.*constant.member,
                   is_default ? constant.source : "given");
  }
  return text;
}

JsonText json_of(const PolicyResult& result) {
  JsonText lost;
  for (std::size_t cause = 0; cause < kNumLostTimes; ++cause)
    lost[kLostTimeNames[cause]] = result.lost[cause];
  return {{"policy", result.policy.name},
          {"effective", result.median},
          {"effective_5", result.low},
          {"effective_95", result.high},
          {"of_all_hosts", result.of_all_hosts},
          {"restarts", result.restarts},
          {"lost", lost}};
}

std::string json_text(const Options& options, const FailureMix& mix, double mean_between_s,
                      const std::vector<PolicyResult>& results) {
  JsonText json = {{"gpus", options.world_size},
                   {"days", options.plan.days},
                   {"failure_mix", mix.name},
                   {"mean_between_failures_s", mean_between_s},
                   {"replays", options.plan.replays},
                   {"seed", options.plan.replay_seed},
                   {"checkpoint_minutes", options.plan.checkpoint_minutes}};
  for (const FaultConstant& constant : fault_constants())
    json["constants"][constant.name] = options.plan.*constant.member;
  for (const PolicyResult& result : results) json["policies"].push_back(json_of(result));
  return json.dump() + "\n";
}

}  // namespace

int run_plan_faults(std::span<const std::string> args) {
  Options options;
  std::cerr << notes_text(parse_command_line(table(), args, options, "plan"));
  check(options);
  const FaultPlanOptions& plan = options.plan;
  const FailureMix mix =
      plan.failure_mix == "llama3" ? llama3_failure_mix() : read_failure_mix(plan.failure_mix);
  const std::vector<PolicyResult> results =
      compare_policies(run_of(options), mix, recovery_policies(times_of(plan)), plan.replays,
                       static_cast<std::uint64_t>(plan.replay_seed));
  const double rate =
      mix.rate_of_gpu() * plan.failure_rate_scale * static_cast<double>(options.world_size);
  std::cout << (options.json ? json_text : text_of)(options, mix, rate > 0 ? 1 / rate : 0, results);
  return 0;
}

}  // namespace megatron
