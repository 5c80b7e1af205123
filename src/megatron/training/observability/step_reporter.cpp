#include "megatron/training/observability/step_reporter.h"

#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <fstream>
#include <ostream>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/machine.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/print_config.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/device_peak.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/per_layer_norms.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

std::string cpu_model_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown CPU";
}

std::string machine(const std::string& device_name) {
  return host_name() + ", " + (device_name.empty() ? "" : device_name + ", ") + cpu_model_name() +
         ", " + std::to_string(at::get_num_threads()) + " threads";
}

/// Counts each weight once, even if several ranks hold it.
std::int64_t num_model_parameters(const ParamStore& weights) {
  double total = 0;
  for (std::size_t group = 0; group < weights.groups().size(); ++group) {
    std::int64_t mine = 0;
    for (const Parameter* parameter : weights.parameters()) {
      if (weights.group_of(*parameter) != group || parameter->spec().kind == ParameterKind::state)
        continue;
      for (const TensorSlice& slice : parameter->owned_slices()) mine += num_elements(slice.shape);
    }
    total += all_reduce_sum({weights.groups()[group].model, weights.device()},
                            {static_cast<double>(mine)}, "parameters")
                 .front();
  }
  return std::llround(total);
}

/// Timers in Megatron's order, followed by our all-gather of parameters.
constexpr std::string_view kStepTimers[] = {"forward-backward",
                                            "forward-compute",
                                            "backward-compute",
                                            "batch-generator",
                                            "all-grads-sync",
                                            "optimizer-copy-to-main-grad",
                                            "optimizer-unscale-and-check-inf",
                                            "optimizer-clip-main-grad",
                                            "optimizer-count-zeros",
                                            "optimizer-inner-step",
                                            "optimizer-copy-main-to-model-params",
                                            "params-all-gather",
                                            "optimizer"};

/// Returns which run wrote the existing lines. Lines past this run's iteration are its own when it
/// continues the run in --save, or when it resumes without saving. Otherwise they may belong to
/// another run; at iteration 0 that run cannot be distinguished from a restart before the first
/// save.
ExistingMetrics existing_metrics(const CheckpointConfig& config, const TrainingProgress& progress,
                                 bool continues_saved_run) {
  const bool is_resume = progress.iteration > 0;
  const bool is_same =
      is_resume && !config.ckpt_step && (config.save.empty() || continues_saved_run);
  return is_same ? ExistingMetrics::same_run : ExistingMetrics::other_run;
}

/// Disables file output on all ranks except the one that writes.
LoggerConfig rank_logger_config(const TrainingPlan& plan) {
  LoggerConfig logger = *plan.settings.logger;
  if (plan.rank.index == 0) return logger;
  logger.tensorboard_dir.clear();
  logger.prometheus_file.clear();
  logger.prometheus_port.reset();
  return logger;
}

ThroughputMeter make_throughput_meter(const TrainingPlan& plan) {
  const Settings& settings = plan.settings;
  const auto peak =
      settings.logger->log_throughput
          ? std::optional(peak_flops(plan.rank.device, plan.device_name, plan.params_dtype))
          : std::nullopt;
  return {plan.flops_per_sample, peak, static_cast<double>(plan.rank.world.size)};
}

/// Returns the record at the head of a run's metrics, which `megatron report` shows:
/// {"iteration": …, "run": {"started": …, "machine": …, "parameters": …, "settings": {…}}}.
/// Setting values are text in Python's notation; "parameters" counts the whole model. Collective
/// over the model's ranks.
JsonText run_record(const TrainingPlan& plan, const TrainingState& state,
                    const std::vector<SplitShare>& data) {
  JsonText settings = JsonText::object();
  for (const auto& [name, value] : argument_values(plan.settings)) settings[name] = value;
  return {{"iteration", state.progress.iteration},
          {"run",
           {{"started", current_time()},
            {"machine", machine(plan.device_name)},
            {"parameters", num_model_parameters(*state.weights)},
            {"flops_per_iteration", plan.flops(state.batch)},
            {"world_size", plan.rank.world.size},
            {"data_parallel_size", plan.rank.dp.size},
            {"data", data_json(data)},
            {"settings", std::move(settings)}}}};
}

}  // namespace

StepReporter::StepReporter(const TrainingPlan& plan, const TrainingState& state,
                           const ReportingContext& context, const Console& console)
    : plan_(plan),
      state_(state),
      timers_(context.timers),
      memory_before_model_(context.memory_before_model),
      console_(console),
      logger_(rank_logger_config(plan)),
      throughput_(make_throughput_meter(plan)),
      first_iteration_(state.progress.iteration + 1) {
  open_outputs(context);
  reset_peak_tensor_memory(plan.rank.device);
  timers_.start("interval-time");
}

void StepReporter::open_metrics(const ReportingContext& context, ExistingMetrics existing) {
  const JsonText record = run_record(plan_, state_, context.shares);
  if (plan_.rank.index != 0) return;
  metrics_.emplace(metrics_folder(plan_.settings), state_.progress.iteration, existing);
  if (const auto& copy = metrics_->backup_path(); !copy.empty())
    console_.out
        << "note: metrics.jsonl held later lines of an earlier start; all its lines are kept in "
        << copy.string() << std::endl;
  metrics_->write(record);
}

void StepReporter::open_outputs(const ReportingContext& context) {
  const std::int64_t iteration = state_.progress.iteration;
  const ExistingMetrics existing =
      existing_metrics(*plan_.settings.checkpoint, state_.progress, context.continues_saved_run);
  if (!metrics_folder(plan_.settings).empty()) open_metrics(context, existing);
  if (!logger_.tensorboard_dir.empty()) {
    tensorboard_.emplace(logger_, iteration, existing);
    tensorboard_->add_settings(argument_values(plan_.settings), iteration);
  }
  if (PrometheusOutput::is_wanted(logger_)) prometheus_.emplace(logger_);
  if (plan_.settings.parallel->log_comm && context.communicators != nullptr)
    comm_log_.emplace(context.communicators->counters());
  if (StepProfiler::is_wanted(plan_)) profiler_.emplace(plan_, state_, timers_, console_.out);
  if (PipelineTrace::is_wanted(plan_.settings))
    pipeline_trace_.emplace(plan_, state_, timers_, console_.out);
  if (StragglerMonitor::is_wanted(plan_.settings))
    stragglers_.emplace(plan_, timers_, context.communicators, console_.out);
  if (logger_.log_memory && !plan_.settings.training->skip_train)
    activations_.emplace(*state_.model, *state_.weights);
}

void StepReporter::begin_step() {
  if (profiler_) profiler_->before_step();
  if (pipeline_trace_) pipeline_trace_->before_step();
  if (!activations_) return;
  activations_->before_step(pipeline_trace_ ? pipeline_trace_->listener() : nullptr);
  offloaded_before_step_ = offload_counters(state_.offload_store.get(), *state_.optimizer);
}

StepListener* StepReporter::step_listener() {
  if (activations_) return &*activations_;
  return pipeline_trace_ ? pipeline_trace_->listener() : nullptr;
}

void StepReporter::close() {
  if (profiler_) profiler_->close();
  console_.bar.clear();
  if (stragglers_) stragglers_->close();
  print_stragglers(/*closes_interval=*/true);
  if (pipeline_trace_) pipeline_trace_->close();
}

void StepReporter::write(const auto& metrics, const PerLayerNorms* norms,
                         std::span<const MemoryTable> memory) {
  if (metrics_) {
    JsonText line = json_line(metrics);
    if (norms != nullptr) line["layer_norms"] = per_layer_norms_json(*norms);
    for (const MemoryTable& rank : memory) line["memory_of_ranks"].push_back(memory_json(rank));
    metrics_->write(line);
  }
  if (tensorboard_) tensorboard_->add(metrics);
  if (prometheus_) prometheus_->add(metrics);
}

void StepReporter::report(const TrainStepResult& step, double elapsed_s) {
  // The hooks of the recorder lie inside those of the profiler.
  const std::vector<MemoryTable> memory = measure_memory_if_due();
  if (profiler_) profiler_->after_step();
  StepMetrics metrics = metrics_of(step, elapsed_s);
  if (pipeline_trace_) pipeline_trace_->after_step();
  if (stragglers_) metrics.stragglers = stragglers_->after_step(metrics.iteration);
  if (comm_log_) comm_log_->skip();  // what the trace and the straggler report sent
  interval_.add(step, static_cast<double>(state_.batch.running_batch_size));
  write(metrics, step.layer_norms.get(), memory);
  const std::int64_t iteration = metrics.iteration;
  const bool is_first = iteration == first_iteration_,
             closes_interval = iteration % plan_.settings.logger->log_interval == 0;
  if (is_first && step.hybrid_context)
    console_.lines() << hybrid_context_line(*step.hybrid_context, plan_.rank.dp_cp.size)
                     << std::endl;
  if (is_first || closes_interval) print_iteration(metrics);
  if (step.layer_norms)
    console_.lines() << per_layer_norms_text(*step.layer_norms, plan_.units, iteration)
                     << std::flush;
  print_memory(memory);
  if (closes_interval) close_interval();
  print_stragglers(closes_interval);
  console_.bar.update(static_cast<std::uint64_t>(iteration), format("loss %.4f", step.loss()));
}

bool StepReporter::is_memory_due() const {
  const auto interval = plan_.settings.logger->log_memory_interval;
  const std::int64_t iteration = state_.progress.iteration;
  return iteration <= first_iteration_ + 1 || (interval && iteration % *interval == 0);
}

std::vector<MemoryTable> StepReporter::measure_memory_if_due() {
  if (!activations_) return {};
  RecordedActivations recorded = activations_->after_step();
  if (!is_memory_due()) return {};
  MemoryTable table =
      measure_memory(*state_.weights, *state_.optimizer, std::move(recorded), memory_before_model_);
  set_offloaded(table, offloaded_before_step_,
                offload_counters(state_.offload_store.get(), *state_.optimizer));
  return gather_memory_tables(plan_.rank.world, plan_.rank.device, table);
}

void StepReporter::print_memory(const std::vector<MemoryTable>& ranks) {
  if (!is_memory_due()) return;
  const c10::Device device = plan_.rank.device;
  console_.lines() << memory_line(state_.progress.iteration, device,
                                  plan_.settings.logger->log_device_memory_used)
                   << std::endl;
  if (ranks.empty()) return;
  const TheoreticalMemory theory = theoretical_memory(
      plan_.dimensions,
      run_memory_layout(plan_.settings, plan_.rank, state_.batch.num_microbatches));
  console_.out << memory_report(state_.progress.iteration, ranks, theory) << std::endl;
  reset_peak_tensor_memory(device);
}

void StepReporter::print_stragglers(bool closes_interval) {
  if (!stragglers_) return;
  for (const std::string& line : stragglers_->take_lines(closes_interval))
    console_.lines() << " [" << current_time() << "] " << line << std::endl;
}

StepMetrics StepReporter::metrics_of(const TrainStepResult& step, double elapsed_s) {
  const TrainingProgress& progress = state_.progress;
  const LoggerConfig& logger = *plan_.settings.logger;
  const double samples = static_cast<double>(state_.batch.running_batch_size);
  StepMetrics metrics{.iteration = progress.iteration,
                      .train_iters = plan_.settings.training->train_iters,
                      .consumed_samples = progress.consumed_train_samples,
                      .skipped_samples = progress.skipped_train_samples,
                      .global_batch_size = state_.batch.running_batch_size,
                      .world_size = plan_.rank.world.size,
                      .losses = logged_losses(step),
                      .learning_rate = state_.scheduler.lr(),
                      .decoupled_learning_rate = state_.scheduler.decoupled_lr(),
                      .loss_scale = step.update.loss_scale,
                      .grad_norm = step.update.applied
                                       ? std::optional(step.update.grad_norm)
                                       : std::nullopt,  // as in Megatron, absent for a skipped step
                      .is_skipped = !step.update.applied,
                      .elapsed_s = elapsed_s,
                      .throughput = throughput_.rates(trained_work(step, samples, elapsed_s)),
                      .memory = process_memory(plan_.rank.device)};
  metrics.routing = step.routing;
  metrics.hybrid_context = step.hybrid_context;
  metrics.logs_layers_routing = plan_.settings.model->moe.per_layer_logging;
  if (comm_log_) metrics.traffic = comm_log_->take_step();
  if (logger.log_params_norm) metrics.params_norm = state_.optimizer->main_parameters().norm();
  metrics.max_attention_logit = step.max_attention_logit;
  if (logger.log_num_zeros_in_grad && step.update.applied)
    metrics.num_zeros = step.update.num_zeros;
  return metrics;
}

void StepReporter::print_iteration(const StepMetrics& step) {
  const double seconds = timers_.seconds("interval-time");
  IterationReport report{.step = step, .shows_throughput = plan_.settings.logger->log_throughput};
  report.step.throughput = throughput_.rates(interval_.work(seconds));
  interval_.fill(report, seconds);
  console_.lines() << iteration_line(report, current_time()) << std::endl;
}

/// Prints and charts the timers as means over the interval, then resets all of them.
void StepReporter::close_interval() {
  const double iterations = static_cast<double>(plan_.settings.logger->log_interval);
  const double seconds = timers_.seconds("interval-time");
  IntervalMetrics interval{.iteration = state_.progress.iteration,
                           .iteration_s = seconds / static_cast<double>(interval_.iterations())};
  if (plan_.settings.logger->log_throughput)
    interval.throughput = throughput_.rates(interval_.work(seconds)).flops_per_second / 1e12;
  for (const std::string_view name : kStepTimers) {
    if (const double total = timers_.seconds(name); total > 0)
      interval.timer_means.emplace_back(name, total / iterations);
  }
  if (tensorboard_) {
    tensorboard_->add(interval);
    tensorboard_->flush();
  }
  const std::string times = timers_.report(kStepTimers, iterations);
  if (!times.empty()) console_.out << times << std::endl;
  if (comm_log_) console_.out << comm_log_->take_table(plan_.rank.index) << std::flush;
  interval_.reset();
  timers_.reset("interval-time");
}

void StepReporter::report_evaluation(std::string_view split, const std::string& where,
                                     const NamedLosses& losses, std::string_view suffix) {
  console_.lines() << timers_.report(std::array<std::string_view, 1>{"evaluate"}) << '\n'
                   << validation_block(where, losses, suffix) << std::endl;
  const EvaluationMetrics metrics{.iteration = state_.progress.iteration,
                                  .consumed_samples = state_.progress.consumed_train_samples,
                                  .split = std::string(split),
                                  .suffix = std::string(suffix),
                                  .losses = losses};
  write(metrics);
}

}  // namespace megatron
