// Implements `megatron plan --checkpoint`: the files, bytes and seconds of a run's checkpoints, and
// how often to save them.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/engine/planned_run.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/plan_options.h"
#include "megatron/config/settings.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/save_interval.h"

namespace megatron {
namespace {

constexpr double kGigabyte = 1e9, kHour = 3600;

struct PlannedCheckpoint {
  double bytes = 0, largest_rank = 0;
  std::int64_t num_files = 0, num_hosts = 1;
  double seconds = 0;    ///< of a save
  double failure_s = 0;  ///< mean time between failures of the job
  std::optional<double> interval_s;
};

std::int64_t num_files_of(double bytes) {
  const auto most = static_cast<double>(ShardFileOptions{}.max_shard_bytes);
  return static_cast<std::int64_t>(std::ceil(bytes / most));
}

PlannedCheckpoint plan_checkpoint(const PlannedRun& run) {
  const auto& [options, world_size, settings, family] = run;
  PlannedCheckpoint plan;
  const auto shares = checkpoint_shares(settings, family, world_size);
  const std::int64_t ranks_per_stage = world_size / static_cast<std::int64_t>(shares.size());
  for (const CheckpointShare& share : shares) {
    const double bytes = share.weights + share.optimizer;
    plan.bytes += bytes * static_cast<double>(ranks_per_stage);
    plan.largest_rank = std::max(plan.largest_rank, bytes);
    plan.num_files +=
        (num_files_of(share.weights) + num_files_of(share.optimizer)) * ranks_per_stage;
  }
  const std::int64_t per_host = std::min(options.gpus_per_host, world_size);
  plan.num_hosts = (world_size + per_host - 1) / per_host;
  plan.seconds = std::max(
      plan.bytes / (options.storage_gbytes_per_s * kGigabyte),
      plan.largest_rank * static_cast<double>(per_host) / (options.host_gbytes_per_s * kGigabyte));
  plan.failure_s = options.host_mtbf_hours * kHour / static_cast<double>(plan.num_hosts);
  if (options.step_seconds && settings.checkpoint->save_interval)
    plan.interval_s =
        *options.step_seconds * static_cast<double>(*settings.checkpoint->save_interval);
  return plan;
}

std::string time_text(double seconds) {
  if (seconds >= 2 * kHour) return format("%.1f h", seconds / kHour);
  return seconds >= 120 ? format("%.1f min", seconds / 60) : format("%.1f s", seconds);
}

std::string text_of(const PlannedCheckpoint& plan, std::int64_t world_size) {
  const double best = best_save_interval(plan.seconds, plan.failure_s);
  const auto loses = [&](double interval) {
    return format("every %s, loses %.2f %% of the time", time_text(interval).c_str(),
                  100 * lost_share(interval, plan.seconds, plan.failure_s));
  };
  std::string text =
      format("checkpoint of %lld ranks on %lld hosts\n", static_cast<long long>(world_size),
             static_cast<long long>(plan.num_hosts)) +
      "  size            " + byte_size_text(plan.bytes) +
      format(" in %lld files\n", static_cast<long long>(plan.num_files)) + "  largest rank    " +
      byte_size_text(plan.largest_rank) + "\n  a save          " + time_text(plan.seconds) +
      "\n  a failure       every " + time_text(plan.failure_s) + "\n  best interval   " +
      loses(best) + "\n";
  if (plan.interval_s) text += "  --save-interval " + loses(*plan.interval_s) + "\n";
  return text;
}

std::string json_of(const PlannedCheckpoint& plan, std::int64_t world_size) {
  const double best = best_save_interval(plan.seconds, plan.failure_s);
  JsonText json{{"world_size", world_size},
                {"num_hosts", plan.num_hosts},
                {"bytes", plan.bytes},
                {"largest_rank_bytes", plan.largest_rank},
                {"num_files", plan.num_files},
                {"save_seconds", plan.seconds},
                {"failure_seconds", plan.failure_s},
                {"best_interval_seconds", best},
                {"best_lost_share", lost_share(best, plan.seconds, plan.failure_s)}};
  if (plan.interval_s) {
    json["interval_seconds"] = *plan.interval_s;
    json["lost_share"] = lost_share(*plan.interval_s, plan.seconds, plan.failure_s);
  }
  return json.dump() + "\n";
}

}  // namespace

int run_plan_checkpoint(std::span<const std::string> args, const ModelFamilies& families) {
  const PlannedRun run = read_planned_run(PlanMode::checkpoint, args, families);
  const PlannedCheckpoint plan = plan_checkpoint(run);
  std::cout << (run.options.json ? json_of(plan, run.world_size) : text_of(plan, run.world_size));
  return 0;
}

}  // namespace megatron
