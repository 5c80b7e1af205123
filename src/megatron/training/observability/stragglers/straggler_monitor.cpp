#include "megatron/training/observability/stragglers/straggler_monitor.h"

#include <cstring>
#include <fstream>
#include <ostream>
#include <sstream>
#include <type_traits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

PartClock::Clocks clocks_of(Communicators* communicators) {
  return {.now = monotonic_seconds, .waited = [communicators] {
            return communicators != nullptr ? communicators->counters().exposed_seconds() : 0.0;
          }};
}

std::unique_ptr<DeviceSpans> device_spans(c10::Device device) {
  return device.is_cpu() ? nullptr : std::make_unique<DeviceSpans>(device);
}

/// Returns the time for which the calling thread ran and for which it waited for a CPU since it
/// started; 0 where the kernel does not count them.
OwnTimes thread_cpu_times() {
  double ran_ns = 0, waited_ns = 0;
  std::ifstream("/proc/thread-self/schedstat") >> ran_ns >> waited_ns;
  return {.cpu_s = ran_ns * 1e-9, .cpu_wait_s = waited_ns * 1e-9};
}

/// Returns the places of all ranks. Collective over the world.
std::vector<RankPlace> gather_places(const Rank& rank) {
  std::vector<RankPlace> places;
  for (const std::string& text : all_gather_strings(
           {rank.world, rank.device}, std::to_string(rank.pp.rank) + " " + host_name())) {
    std::istringstream words(text);
    RankPlace& place = places.emplace_back();
    words >> place.stage >> place.host;
  }
  return places;
}

static_assert(std::is_trivially_copyable_v<OwnTimes>);

std::string to_bytes(const std::vector<OwnTimes>& steps) {
  return {reinterpret_cast<const char*>(steps.data()), steps.size() * sizeof(OwnTimes)};
}

/// The inverse of to_bytes().
std::vector<OwnTimes> to_steps(const std::string& bytes) {
  std::vector<OwnTimes> steps(bytes.size() / sizeof(OwnTimes));
  std::memcpy(static_cast<void*>(steps.data()), bytes.data(), steps.size() * sizeof(OwnTimes));
  return steps;
}

}  // namespace

bool StragglerMonitor::is_wanted(const Settings& settings) {
  return settings.logger->log_straggler && !settings.training->skip_train;
}

StragglerMonitor::StragglerMonitor(const TrainingPlan& plan, Timers& timers,
                                   Communicators* communicators, std::ostream& out)
    : rank_(plan.rank),
      timers_(timers),
      clock_(clocks_of(communicators), device_spans(plan.rank.device)) {
  std::vector<RankPlace> places = gather_places(rank_);
  if (rank_.index == 0) open_report(*plan.settings.logger, std::move(places), out);
  timers_.add_listener(clock_);  // last: the destructor removes it
}

void StragglerMonitor::open_report(const LoggerConfig& logger, std::vector<RankPlace> places,
                                   std::ostream& out) {
  tracker_.emplace(std::move(places), static_cast<std::size_t>(logger.straggler_minmax_count));
  if (!tracker_->has_peers())
    out << "note: --log-straggler names no rank in this run: ranks of one pipeline stage are "
           "compared, and each stage is a single rank"
        << std::endl;
  try {
    toggle_.emplace(static_cast<int>(logger.straggler_ctrlr_port),
                    !logger.disable_straggler_on_startup);
  } catch (const UserError& error) {
    if (logger.disable_straggler_on_startup) throw;
    out << "WARNING: the report of --log-straggler cannot be switched off: " << error.what()
        << std::endl;
  }
}

std::optional<StragglerMetrics> StragglerMonitor::after_step(std::int64_t iteration) {
  const OwnTimes times = clock_.take_step();
  if (std::exchange(has_warmed_up_, true)) {
    iterations_.push_back(iteration);
    steps_.push_back(times);
  } else {
    cpu_at_last_gather_ = thread_cpu_times();
  }
  return iteration % kGatherInterval == 0 ? gather() : std::nullopt;
}

std::optional<StragglerMetrics> StragglerMonitor::gather() {
  if (steps_.empty()) return std::nullopt;
  const OwnTimes cpu = thread_cpu_times();
  const auto count = static_cast<double>(steps_.size());
  for (OwnTimes& step : steps_) {
    step.cpu_s = (cpu.cpu_s - cpu_at_last_gather_.cpu_s) / count;
    step.cpu_wait_s = (cpu.cpu_wait_s - cpu_at_last_gather_.cpu_wait_s) / count;
  }
  cpu_at_last_gather_ = cpu;
  // Only rank 0 compares the ranks. The others receive no times.
  const std::vector<std::string> ranks =
      gather_strings({rank_.world, rank_.device}, to_bytes(steps_));
  steps_.clear();
  GatheredTimes gathered{.iterations = std::exchange(iterations_, {})};
  if (!tracker_) return std::nullopt;
  if (toggle_ && !toggle_->is_on()) {
    tracker_->clear();
    return std::nullopt;
  }
  for (const std::string& bytes : ranks) gathered.ranks.push_back(to_steps(bytes));
  return tracker_->add(gathered);
}

std::vector<std::string> StragglerMonitor::take_lines(bool closes_interval) {
  if (!tracker_) return {};
  std::vector<std::string> lines = tracker_->take_changes();
  is_report_due_ |= closes_interval;
  if (!is_report_due_) return lines;
  std::string report = tracker_->take_report();
  if (report.empty()) return lines;
  is_report_due_ = false;
  lines.push_back(std::move(report));
  return lines;
}

}  // namespace megatron
