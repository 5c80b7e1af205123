#include "megatron/training/observability/pipeline_trace.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "megatron/base/files.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/trace/context_report.h"
#include "megatron/pipeline/trace/pipeline_report.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

constexpr std::string_view kForwardBackward = "forward-backward";

/// Returns whether the schedule's own steps already cover the timer in more detail.
bool is_step(std::string_view timer) {
  return timer == "forward-compute" || timer == "backward-compute";
}

}  // namespace

TraceWindow trace_window(const LoggerConfig& logger, std::int64_t done, std::int64_t train_iters) {
  if (has_profile_window(logger)) return {logger.profile_step_start, logger.profile_step_end};
  const std::int64_t begin = std::max(done, std::min(done + 1, train_iters - 1));
  return {begin, begin + 2};
}

bool PipelineTrace::is_wanted(const Settings& settings) {
  return !settings.logger->trace.empty() && !settings.training->skip_train;
}

PipelineTrace::PipelineTrace(const TrainingPlan& plan, const TrainingState& state, Timers& timers,
                             std::ostream& out)
    : plan_(plan),
      state_(state),
      timers_(timers),
      out_(out),
      window_(trace_window(*plan.settings.logger, state.progress.iteration,
                           plan.settings.training->train_iters)),
      recorder_(plan.rank.device),
      trace_{.rank = plan.rank.index,
             .pp = plan.rank.pp.rank,
             .dp = plan.rank.dp.rank,
             .cp = plan.rank.cp.rank,
             .tp = plan.rank.tp.rank,
             .clock = {},
             .iterations = {}} {
  if (plan.rank.index == 0) create_directories(plan.settings.logger->trace);
}

PipelineTrace::~PipelineTrace() {
  timers_.remove_listener(*this);
  if (is_in_step_ && plan_.rank.activities != nullptr) plan_.rank.activities->switch_on(false);
}

void PipelineTrace::before_step() {
  const std::int64_t done = state_.progress.iteration;
  if (is_written_ || done < window_.begin || done >= window_.end) return;
  is_in_step_ = true;
  iteration_ = {.iteration = done + 1, .num_microbatches = 0, .steps = {}, .phases = {}};
  timers_.add_listener(*this);
  if (plan_.rank.activities != nullptr) plan_.rank.activities->switch_on(true);
}

void PipelineTrace::after_step() {
  if (!is_in_step_) return;
  is_in_step_ = false;
  timers_.remove_listener(*this);
  open_.clear();
  iteration_.steps = recorder_.take();
  // With hybrid context parallelism the data decides how many microbatches there are.
  for (const TimedStep& timed : iteration_.steps)
    iteration_.num_microbatches =
        std::max<std::int64_t>(iteration_.num_microbatches, timed.step.microbatch + 1);
  if (ActivityLog* activities = plan_.rank.activities) {
    activities->switch_on(false);
    iteration_.activities = activities->take();
  }
  trace_.iterations.push_back(std::move(iteration_));
  if (state_.progress.iteration >= window_.end) write();
}

void PipelineTrace::close() {
  if (is_written_) return;
  if (trace_.iterations.empty()) {
    out_ << "nothing traced: --trace records from iteration " << window_.begin + 1 << " to "
         << window_.end << std::endl;
  } else {
    write();
  }
}

void PipelineTrace::write() {
  is_written_ = true;
  const Rank& rank = plan_.rank;
  trace_.clock = clock_offset({rank.world, rank.device});
  align_to_rank_0_clock(trace_);
  // With hybrid context parallelism every microbatch has another length, and no simulation.
  const bool simulates_context =
      rank.cp.size > 1 && !plan_.settings.parallel->hybrid_context_parallel;
  const std::vector<ContextLayers> layers =
      simulates_context ? context_layers(plan_.settings) : std::vector<ContextLayers>{};
  if (simulates_context) {
    const ContextAttention& attention = layers.front().attention;
    trace_.cp_link = measure_link(rank.cp, rank.device, attention.key_value_bytes());
  }
  const std::vector<std::string> texts =
      gather_strings({rank.world, rank.device}, serialize(trace_));
  if (rank.index != 0) return;
  std::vector<RankTrace> ranks;
  for (const std::string& text : texts) ranks.push_back(parse_rank_trace(text));
  const ScheduleProvider schedule_of = [&](std::int64_t count) -> const Schedule& {
    return plan_.pipeline.training_schedule(count);
  };
  const PipelineReport report = pipeline_report(ranks, schedule_of);
  std::optional<ContextReport> context;
  if (simulates_context) context = context_report(ranks, layers);
  const fs::path folder = plan_.settings.logger->trace, path = folder / "pipeline-trace.json";
  write_file_atomically(path, trace_json(pipeline_tracks(ranks, schedule_of)));
  write_file_atomically(folder / "pipeline-trace-summary.json",
                        summary_json(report, ranks, context));
  out_ << pipeline_table(report);
  if (context) out_ << "\n" << context_table(*context);
  if (plan_.settings.parallel->hybrid_context_parallel)
    out_ << "\n  context parallelism: not compared with a simulation, because every microbatch of "
            "--hybrid-context-parallel has another length";
  out_ << "\n  timeline for ui.perfetto.dev: " << path.string() << std::endl;
}

void PipelineTrace::on_start(std::string_view timer) {
  if (timer == kForwardBackward) {  // Discard an earlier run of the same pass.
    recorder_.take();
    if (plan_.rank.activities != nullptr) plan_.rank.activities->take();
  }
  if (!is_step(timer))
    open_.push_back({std::string(timer), {.begin_s = monotonic_seconds(), .end_s = 0}});
}

void PipelineTrace::on_stop(std::string_view timer) {
  const auto found = std::ranges::find(open_, timer, &TracedPhase::name);
  if (found == open_.end()) return;
  found->span.end_s = monotonic_seconds();
  iteration_.phases.push_back(std::move(*found));
  open_.erase(found);
}

}  // namespace megatron
