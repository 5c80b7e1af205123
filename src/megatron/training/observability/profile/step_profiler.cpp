#include "megatron/training/observability/profile/step_profiler.h"

#include <malloc.h>

#include <algorithm>
#include <ostream>

#include "megatron/base/files.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/device_peak.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

constexpr const char* kStep = "step";

DevicePeak device_peak(const TrainingPlan& plan) {
  const c10::Device device = plan.rank.device;
  return {.flops_per_second = peak_flops(device, plan.device_name, plan.params_dtype),
          .bytes_per_second = peak_bandwidth(device, plan.device_name)};
}

AllocationCounts count_memory() {
  const TensorAllocations tensors = tensor_allocations();
  const struct mallinfo2 heap = ::mallinfo2();
  return {.tensors = static_cast<double>(tensors.tensors),
          .system = static_cast<double>(tensors.system),
          .heap_growth = static_cast<double>(heap.arena + heap.hblkhd)};
}

AllocationCounts operator-(const AllocationCounts& a, const AllocationCounts& b) {
  return {.tensors = a.tensors - b.tensors,
          .system = a.system - b.system,
          .heap_growth = a.heap_growth - b.heap_growth};
}

}  // namespace

bool StepProfiler::is_wanted(const TrainingPlan& plan) {
  const LoggerConfig& logger = *plan.settings.logger;
  return logger.profile && (logger.profile_ranks.empty() ||
                            std::ranges::count(logger.profile_ranks, plan.rank.index) > 0);
}

StepProfiler::StepProfiler(const TrainingPlan& plan, const TrainingState& state, Timers& timers,
                           std::ostream& out)
    : plan_(plan), state_(state), timers_(timers), out_(out) {}

StepProfiler::~StepProfiler() {
  if (recorder_) timers_.remove_listener(*this);
}

void StepProfiler::before_step() {
  if (is_finished_) return;
  const LoggerConfig& logger = *plan_.settings.logger;
  const std::int64_t done = state_.progress.iteration;
  if (!recorder_ && done >= logger.profile_step_start && done < logger.profile_step_end) start();
  if (!recorder_) return;
  is_in_step_ = true;
  recorder_->begin(kStep, RecordedOp::Kind::phase);
}

void StepProfiler::after_step() {
  if (!recorder_) return;
  recorder_->end(kStep);
  is_in_step_ = false;
  if (state_.progress.iteration >= plan_.settings.logger->profile_step_end) finish();
}

void StepProfiler::close() {
  if (recorder_ && !is_in_step_) finish();
}

void StepProfiler::start() {
  first_iteration_ = state_.progress.iteration + 1;
  recorder_ = std::make_unique<OpRecorder>(plan_.rank.device);
  hooks_.emplace(*state_.model, static_cast<UnitHooks&>(*this));
  timers_.add_listener(*this);
  at_start_ = count_memory();
}

void StepProfiler::finish() {
  const AllocationCounts memory = count_memory() - at_start_;
  hooks_.reset();
  timers_.remove_listener(*this);
  const std::vector<RecordedOp> ops = recorder_->take();
  recorder_.reset();
  is_finished_ = true;
  const std::string path = trace_path();
  megatron::create_directories(fs::path(path).parent_path());
  const TraceTrack track = trace_track(ops, static_cast<int>(plan_.rank.index));
  write_file_atomically(path, trace_json({&track, 1}));
  const ProfileSummary head{.first_iteration = first_iteration_,
                            .num_steps = state_.progress.iteration - first_iteration_ + 1,
                            .peak = device_peak(plan_),
                            .memory = memory};
  out_ << profile_table(head, ops) << "\ntrace for ui.perfetto.dev: " << path << std::endl;
}

std::string StepProfiler::trace_path() const {
  const Settings& settings = plan_.settings;
  fs::path folder = settings.logger->profile_dir;
  if (folder.empty()) folder = fs::path(metrics_folder(settings)) / "profile";
  return folder / ("rank_" + std::to_string(plan_.rank.index) + "_iteration_" +
                   std::to_string(first_iteration_) + ".trace.json");
}

void StepProfiler::before_forward(const Module& unit) {
  if (is_in_step_) recorder_->begin(unit.path(), RecordedOp::Kind::module);
}

/// A unit's backward range runs from the gradient of its output to the gradient of the previous
/// unit's output.
void StepProfiler::after_forward(const Module& unit, const at::Tensor& output) {
  if (!is_in_step_) return;
  recorder_->end(unit.path());
  if (!output.requires_grad()) return;
  const std::string name = unit.path() + " (backward)";
  output.register_hook([this, name](const at::Tensor& /*gradient*/) {
    if (!is_in_step_) return;
    if (!backward_unit_.empty()) recorder_->end(backward_unit_);
    recorder_->begin(name, RecordedOp::Kind::module);
    backward_unit_ = name;
  });
}

void StepProfiler::on_start(std::string_view timer) {
  if (is_in_step_) recorder_->begin(std::string(timer), RecordedOp::Kind::phase);
}

void StepProfiler::on_stop(std::string_view timer) {
  if (!is_in_step_) return;
  recorder_->end(std::string(timer));
  backward_unit_.clear();
}

}  // namespace megatron
