#include "megatron/training/observability/step_reporter.h"

#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/config/print_config.h"
#include "megatron/models/params_dtype.h"
#include "megatron/planner/device_peak.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/per_layer_norms.h"
#include "megatron/training/observability/process_memory.h"
#include "megatron/training/observability/run_record.h"
#include "megatron/training/saving/check_save_folders.h"

namespace megatron {
namespace {

/// Timers in Megatron's order, followed by our all-gather of parameters.
constexpr std::array<std::string_view, 13> kStepTimers{"forward-backward",
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
ExistingMetrics existing_metrics(const Trainer& trainer) {
  const CheckpointConfig& config = trainer.settings.checkpoint;
  const bool is_resume = trainer.progress.iteration > 0;
  const bool is_same = is_resume && !config.ckpt_step &&
                       (config.save.empty() || continues_saved_run(config, trainer.source));
  return is_same ? ExistingMetrics::same_run : ExistingMetrics::other_run;
}

MetricsWriter make_metrics_writer(const Trainer& trainer) {
  const Settings& settings = trainer.settings;
  const std::string& folder = settings.logger.tensorboard_dir.empty()
                                  ? settings.checkpoint.save
                                  : settings.logger.tensorboard_dir;
  return folder.empty() || trainer.rank.index != 0
             ? MetricsWriter()
             : MetricsWriter(folder, trainer.progress.iteration, existing_metrics(trainer));
}

/// Disables file output on all ranks except the one that writes.
LoggerConfig rank_logger_config(const Trainer& trainer) {
  LoggerConfig logger = trainer.settings.logger;
  if (trainer.rank.index == 0) return logger;
  logger.tensorboard_dir.clear();
  logger.prometheus_file.clear();
  logger.prometheus_port.reset();
  return logger;
}

ThroughputMeter make_throughput_meter(const Trainer& trainer) {
  const Settings& settings = trainer.settings;
  const auto peak = settings.logger.log_throughput
                        ? std::optional(peak_flops(trainer.rank.device, trainer.device_name,
                                                   params_dtype(settings.training)))
                        : std::nullopt;
  return {sample_flops(run_dimensions(settings), settings.training.seq_length), peak,
          static_cast<double>(trainer.rank.world.size)};
}

}  // namespace

StepReporter::StepReporter(Trainer& trainer, std::ostream& out, ProgressBar& bar)
    : trainer_(trainer),
      out_(out),
      bar_(bar),
      logger_(rank_logger_config(trainer)),
      profiler_(trainer, out),
      pipeline_trace_(trainer, out),
      throughput_(make_throughput_meter(trainer)),
      metrics_(make_metrics_writer(trainer)),
      tensorboard_(logger_, trainer.progress.iteration, existing_metrics(trainer)),
      comm_log_(trainer.world.communicators, trainer.settings.parallel.log_comm),
      first_iteration_(trainer.progress.iteration + 1) {
  if (const auto& copy = metrics_.backup_path(); !copy.empty())
    out_ << "note: metrics.jsonl held later lines of an earlier start; all its lines are kept in "
         << copy.string() << std::endl;
  metrics_.write(run_record(trainer));
  tensorboard_.add_settings(argument_values(trainer.settings), trainer.progress.iteration);
  if (!logger_.prometheus_file.empty())
    write_prometheus_file(logger_.prometheus_file, prometheus_.text());
  if (logger_.prometheus_port)
    prometheus_server_.emplace(static_cast<int>(*logger_.prometheus_port),
                               [this] { return prometheus_.text(); });
  reset_peak_tensor_memory(trainer.rank.device);
  trainer_.timers.start("interval-time");
}

void StepReporter::begin_step() {
  profiler_.before_step();
  pipeline_trace_.before_step();
}

void StepReporter::close() {
  profiler_.close();
  bar_.clear();
  pipeline_trace_.close();
}

void StepReporter::write(const auto& metrics, const PerLayerNorms* norms) {
  OrderedJson line = json_line(metrics);
  if (norms != nullptr) line["layer_norms"] = per_layer_norms_json(*norms);
  metrics_.write(line);
  tensorboard_.add(metrics);
  prometheus_.add(metrics);
  write_prometheus();
}

void StepReporter::write_prometheus() {
  if (logger_.prometheus_file.empty()) return;
  try {
    write_prometheus_file(logger_.prometheus_file, prometheus_.text());
    is_prometheus_file_lost_ = false;
  } catch (const UserError& error) {
    if (!std::exchange(is_prometheus_file_lost_, true))
      std::cerr << "WARNING: training continues without it: " << error.what() << std::endl;
  }
}

void StepReporter::report(const TrainStepResult& step, double elapsed_s) {
  profiler_.after_step();
  pipeline_trace_.after_step();
  const StepMetrics metrics = metrics_of(step, elapsed_s);
  interval_.add(step, static_cast<double>(trainer_.batch.running_batch_size));
  write(metrics, step.layer_norms.get());
  const std::int64_t iteration = metrics.iteration;
  const bool is_first = iteration == first_iteration_,
             closes_interval = iteration % trainer_.settings.logger.log_interval == 0;
  if (is_first || closes_interval) print_iteration(metrics);
  if (step.layer_norms) {
    bar_.clear();
    out_ << per_layer_norms_text(*step.layer_norms, iteration) << std::flush;
  }
  report_memory();
  if (closes_interval) close_interval();
  bar_.update(static_cast<std::uint64_t>(iteration), format("loss %.4f", step.loss()));
}

void StepReporter::report_memory() {
  const LoggerConfig& logger = trainer_.settings.logger;
  const std::int64_t iteration = trainer_.progress.iteration;
  const bool is_due = logger.log_memory_interval && iteration % *logger.log_memory_interval == 0;
  if (!is_due && iteration > first_iteration_ + 1) return;
  const c10::Device device = trainer_.rank.device;
  bar_.clear();
  out_ << memory_line(iteration, device, logger.log_device_memory_used) << std::endl;
  if (!logger.log_memory) return;
  const TheoreticalMemory theory = theoretical_memory(
      run_dimensions(trainer_.settings),
      run_memory_layout(trainer_.settings, trainer_.rank, trainer_.batch.num_microbatches));
  out_ << memory_table(iteration, measure_memory(*trainer_.weights, *trainer_.optimizer), theory)
       << std::endl;
  reset_peak_tensor_memory(device);
}

StepMetrics StepReporter::metrics_of(const TrainStepResult& step, double elapsed_s) {
  const TrainingProgress& progress = trainer_.progress;
  const LoggerConfig& logger = trainer_.settings.logger;
  const double samples = static_cast<double>(trainer_.batch.running_batch_size);
  StepMetrics metrics{
      .iteration = progress.iteration,
      .train_iters = trainer_.settings.training.train_iters,
      .consumed_samples = progress.consumed_train_samples,
      .skipped_samples = progress.skipped_train_samples,
      .global_batch_size = trainer_.batch.running_batch_size,
      .world_size = trainer_.rank.world.size,
      .losses = {{"lm loss", step.loss()}},
      .learning_rate = trainer_.scheduler.lr(),
      .decoupled_learning_rate = trainer_.scheduler.decoupled_lr(),
      .loss_scale = step.update.loss_scale,
      .grad_norm = step.update.applied ? std::optional(step.update.grad_norm)
                                       : std::nullopt,  // as in Megatron, absent for a skipped step
      .is_skipped = !step.update.applied,
      .elapsed_s = elapsed_s,
      .throughput =
          throughput_.rates({.samples = samples, .tokens = step.tokens, .seconds = elapsed_s}),
      .memory = process_memory(trainer_.rank.device),
      .traffic = comm_log_.take_step()};
  if (logger.log_params_norm) metrics.params_norm = trainer_.optimizer->main_parameters().norm();
  if (logger.log_num_zeros_in_grad && step.update.applied)
    metrics.num_zeros = step.update.num_zeros;
  return metrics;
}

void StepReporter::print_iteration(const StepMetrics& step) {
  IterationReport report{.iteration = step.iteration,
                         .train_iters = step.train_iters,
                         .consumed_samples = step.consumed_samples,
                         .skipped_samples = step.skipped_samples,
                         .learning_rate = step.learning_rate,
                         .decoupled_learning_rate = step.decoupled_learning_rate,
                         .global_batch_size = step.global_batch_size,
                         .loss_scale = step.loss_scale,
                         .grad_norm = step.grad_norm,
                         .num_zeros = step.num_zeros,
                         .params_norm = step.params_norm};
  const double seconds = trainer_.timers.seconds("interval-time");
  const ThroughputMetrics rates = throughput_.rates(
      {.samples = interval_.samples(), .tokens = interval_.tokens(), .seconds = seconds});
  interval_.fill(report, seconds);
  report.tokens_per_second = rates.tokens_per_second;
  if (trainer_.settings.logger.log_throughput) {
    report.throughput = rates.flops_per_second / 1e12;
    report.mfu = rates.mfu;
    report.mfu_causal = rates.mfu_causal;
  }
  bar_.clear();
  out_ << iteration_line(report, current_time()) << std::endl;
}

/// Prints and charts the timers as means over the interval, then resets all of them.
void StepReporter::close_interval() {
  Timers& timers = trainer_.timers;
  const double iterations = static_cast<double>(trainer_.settings.logger.log_interval);
  const double seconds = timers.seconds("interval-time");
  IntervalMetrics interval{.iteration = trainer_.progress.iteration,
                           .iteration_s = seconds / static_cast<double>(interval_.iterations())};
  if (trainer_.settings.logger.log_throughput)
    interval.throughput =
        throughput_.rates({interval_.samples(), interval_.tokens(), seconds}).flops_per_second /
        1e12;
  for (const std::string_view name : kStepTimers) {
    if (const double total = timers.seconds(name); total > 0)
      interval.timer_means.emplace_back(name, total / iterations);
  }
  tensorboard_.add(interval);
  tensorboard_.flush();
  const std::string times = timers.report(kStepTimers, iterations);
  if (!times.empty()) out_ << times << std::endl;
  out_ << comm_log_.take_table(trainer_.rank.index) << std::flush;
  interval_.reset();
  timers.reset("interval-time");
}

void StepReporter::report_evaluation(std::string_view split, const std::string& where, double loss,
                                     std::string_view suffix) {
  out_ << validation_block(where, {{"lm loss", loss}}, suffix) << std::endl;
  const EvaluationMetrics metrics{.iteration = trainer_.progress.iteration,
                                  .consumed_samples = trainer_.progress.consumed_train_samples,
                                  .split = std::string(split),
                                  .suffix = std::string(suffix),
                                  .losses = {{"lm loss", loss}}};
  write(metrics);
}

}  // namespace megatron
