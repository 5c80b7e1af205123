#include "megatron/training/train_loop.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "megatron/training/checkpointing.h"
#include "megatron/training/evaluation.h"
#include "megatron/training/log_lines.h"
#include "megatron/training/step_reporter.h"
#include "megatron/training/stop_request.h"
#include "megatron/training/train_step.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class TrainLoop {
 public:
  TrainLoop(Trainer& trainer, std::ostream& out)
      : trainer_(trainer),
        training_(trainer.settings.training),
        progress_(trainer.progress),
        out_(out),
        bar_({.title = "training",
              .total = static_cast<std::uint64_t>(trainer.settings.training.train_iters),
              .start = static_cast<std::uint64_t>(trainer.progress.iteration),
              .unit = "iterations"}),
        reporter_(trainer, out, bar_),
        saved_iteration_(trainer.progress.iteration) {}

  int run();

 private:
  bool is_skipped(std::int64_t iteration) const { return std::ranges::count(training_.iterations_to_skip, iteration) > 0; }
  std::int64_t num_microbatches() const { return training_.global_batch_size / training_.micro_batch_size; }
  std::int64_t evaluation_samples() const { return training_.eval_iters * training_.global_batch_size; }
  int exit_code() const { return signals_.received() ? 128 + *signals_.received() : 0; }
  std::string at_iteration() const { return "iteration " + std::to_string(progress_.iteration); }

  void iterate();
  void skip_iteration();
  void count_iteration(std::int64_t skipped_samples);

  bool evaluation_is_due() const;
  void evaluate_if_due();
  void evaluate_split(MicrobatchSource* source, std::string_view split, const std::string& where);

  /// Saves where the settings ask for it; the reason to stop now, or nothing.
  std::optional<std::string> save_or_stop();
  std::optional<std::string> reason_to_stop();
  bool divides_iteration(std::optional<std::int64_t> interval) const { return interval && progress_.iteration % *interval == 0; }
  void save_once();
  void print_event(const std::string& event) {
    bar_.clear();
    out_ << event_line(event, current_time()) << std::endl;
  }

  Trainer& trainer_;
  const TrainingConfig& training_;
  TrainingProgress& progress_;
  std::ostream& out_;
  StopSignals signals_;
  Progress bar_;
  StepReporter reporter_;
  std::int64_t saved_iteration_;
};

int TrainLoop::run() {
  print_event("before the start of training step");
  evaluate_if_due();
  while (progress_.iteration < training_.train_iters) {
    if (is_skipped(progress_.iteration + 1)) {
      skip_iteration();
      continue;
    }
    iterate();
    evaluate_if_due();
    if (const auto reason = save_or_stop()) {
      print_event("exiting program " + *reason);
      return exit_code();
    }
  }
  print_event("after training is done");
  save_once();
  evaluate_split(trainer_.valid.get(), "validation", at_iteration() + " on validation set");
  evaluate_split(trainer_.test.get(), "test", at_iteration() + " on test set");
  return exit_code();
}

void TrainLoop::iterate() {
  const Clock::time_point start = Clock::now();
  const TrainStepParts parts{*trainer_.model, *trainer_.weights, *trainer_.optimizer, *trainer_.train, trainer_.timers};
  const TrainStepResult step = train_step(parts, {.iteration = progress_.iteration + 1,
                                                  .num_microbatches = num_microbatches(),
                                                  .first_ordinal = progress_.consumed_train_samples,
                                                  .calculate_per_token_loss = training_.calculate_per_token_loss,
                                                  .check_for_nan = training_.check_for_nan_in_loss_and_grad,
                                                  .update = {.lr = trainer_.scheduler.lr(),
                                                             .decoupled_lr = trainer_.scheduler.decoupled_lr(),
                                                             .weight_decay = trainer_.scheduler.weight_decay(),
                                                             .count_zeros = trainer_.settings.logger.log_num_zeros_in_grad}});
  if (step.update.applied) trainer_.scheduler.advance(training_.global_batch_size);
  progress_.floating_point_operations += trainer_.flops_per_iteration;
  count_iteration(0);
  reporter_.report(step, seconds_since(start));
}

void TrainLoop::skip_iteration() {
  bar_.clear();
  out_ << "skipping iteration " << progress_.iteration + 1 << ": its samples are passed over" << std::endl;
  for (std::int64_t i = 0; i < num_microbatches(); ++i) trainer_.train->next();
  count_iteration(training_.global_batch_size);
}

void TrainLoop::count_iteration(std::int64_t skipped_samples) {
  ++progress_.iteration;
  progress_.consumed_train_samples += training_.global_batch_size;
  progress_.skipped_train_samples += skipped_samples;
  progress_.scheduler_num_steps = trainer_.scheduler.num_steps();
}

/// Whether the evaluation that belongs to this iteration has not run yet; a run stopped before or during it catches up when resumed.
bool TrainLoop::evaluation_is_due() const {
  if (!trainer_.valid || progress_.iteration == 0 || !divides_iteration(training_.eval_interval)) return false;
  return progress_.consumed_valid_samples < progress_.iteration / *training_.eval_interval * evaluation_samples();
}

void TrainLoop::evaluate_if_due() {
  if (evaluation_is_due()) evaluate_split(trainer_.valid.get(), "validation", at_iteration());
}

void TrainLoop::evaluate_split(MicrobatchSource* source, std::string_view split, const std::string& where) {
  if (!source) return;
  const PausedInterval paused(trainer_.timers);
  std::optional<double> loss;
  {
    const auto timing = trainer_.timers.scope("evaluate");
    loss = evaluate(*trainer_.model, *source, training_.eval_iters * num_microbatches(), [&] { return signals_.received().has_value(); });
  }
  if (!loss) return;
  progress_.consumed_valid_samples += evaluation_samples();
  bar_.clear();
  out_ << trainer_.timers.report(std::array<std::string_view, 1>{"evaluate"}) << '\n';
  reporter_.report_evaluation(split, where, *loss);
}

std::optional<std::string> TrainLoop::save_or_stop() {
  const auto reason = reason_to_stop();
  if (reason || divides_iteration(trainer_.settings.checkpoint.save_interval)) save_once();
  return reason;
}

std::optional<std::string> TrainLoop::reason_to_stop() {
  if (const auto signal = signals_.received()) return "after receiving " + signal_name(*signal) + ".";
  const double minutes = seconds_since(trainer_.started) / 60;
  if (training_.exit_duration_in_mins && minutes > *training_.exit_duration_in_mins) return "after " + std::to_string(minutes) + " minutes";
  if (divides_iteration(training_.exit_interval)) return "at " + at_iteration();
  return std::nullopt;
}

void TrainLoop::save_once() {
  if (trainer_.settings.checkpoint.save.empty() || saved_iteration_ == progress_.iteration) return;
  const PausedInterval paused(trainer_.timers);
  bar_.clear();
  save_trainer(trainer_, out_);
  saved_iteration_ = progress_.iteration;
}

}  // namespace

int train(Trainer& trainer, std::ostream& out) { return TrainLoop(trainer, out).run(); }

}  // namespace megatron
