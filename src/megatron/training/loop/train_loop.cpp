// Implements train().
#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "megatron/base/format.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/loop/validator.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/out_of_memory.h"
#include "megatron/training/observability/step_reporter.h"
#include "megatron/training/resilience/reruns/guarded_step.h"
#include "megatron/training/run/exit_conditions.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/saving/checkpoint_saver.h"
#include "megatron/training/step/expert_placement.h"
#include "megatron/training/step/train_step.h"

namespace megatron {
namespace {

class TrainLoop {
 public:
  TrainLoop(Trainer& trainer, std::ostream& out)
      : plan_(trainer.plan),
        state_(trainer.state),
        trainer_(trainer),
        training_(*plan_.settings.training),
        progress_(state_.progress),
        out_(out),
        slurm_deadline_(slurm_deadline(std::getenv("SLURM_JOB_END_TIME"), trainer_.clock,
                                       !plan_.settings.checkpoint->save.empty())),
        exit_(training_, trainer_.clock, deadline(), plan_.rank),
        bar_({.title = "training",
              .total = static_cast<std::uint64_t>(training_.train_iters),
              .start = static_cast<std::uint64_t>(progress_.iteration),
              .unit = "iterations",
              .enabled = plan_.rank.index == 0 ? std::nullopt : std::optional(false)}),
        console_{out, bar_},
        reporter_(plan_, state_,
                  {.timers = trainer.timers,
                   .communicators = trainer.communicators,
                   .shares = trainer.data.shares,
                   .memory_before_model = trainer.memory_before_model,
                   .continues_saved_run = trainer.folders.continues_saved_run},
                  console_),
        saver_(plan_, state_,
               {.folders = trainer.folders,
                .timers = trainer.timers,
                .sections = *trainer.sections,
                .clock = trainer.clock,
                .communicators = trainer.communicators,
                .deadline = deadline()},
               console_),
        validator_(plan_, state_,
                   {.data = trainer.data,
                    .timers = trainer.timers,
                    .sections = *trainer.sections,
                    .reporter = reporter_},
                   [this] { return exit_.is_urgent(); }),
        guarded_(plan_, state_, out),
        expert_placement_(plan_, state_) {}

  int run();

 private:
  JobDeadline* deadline() {
    return slurm_deadline_.deadline ? &*slurm_deadline_.deadline : nullptr;
  }
  bool is_skipped(std::int64_t iteration) const {
    return std::ranges::count(training_.iterations_to_skip, iteration) > 0;
  }

  void announce_mixture();
  void update_num_microbatches();
  void warn_training_is_complete();
  /// Runs the next iteration. Returns the reason to stop after it, or nullopt.
  std::optional<std::string> run_iteration();
  /// Runs one step. If its result is rejected, sets rejection_ and counts nothing.
  void train_iteration();
  GuardedStep::Outcome run_step(const TrainStepContext& parts, const TrainStepOptions& options);
  void skip_iteration();
  void count_iteration(std::int64_t skipped_samples);
  void print_event(const std::string& event) {
    console_.lines() << event_line(event, current_time()) << std::endl;
  }

  const TrainingPlan& plan_;
  TrainingState& state_;
  Trainer& trainer_;
  const TrainingConfig& training_;
  TrainingProgress& progress_;
  std::ostream& out_;
  SlurmDeadline slurm_deadline_;
  ExitConditions exit_;
  ProgressBar bar_;
  Console console_;
  StepReporter reporter_;
  CheckpointSaver saver_;
  Validator validator_;
  GuardedStep guarded_;
  ExpertPlacement expert_placement_;
  std::optional<int> rejection_;  ///< exit code of a rejected result
};

int TrainLoop::run() {
  if (!slurm_deadline_.line.empty()) out_ << slurm_deadline_.line << std::endl;
  if (training_.skip_train) {
    out_ << "skipping training (--skip-train is on) ..." << std::endl;
    validator_.evaluate_at_end();
    return exit_.exit_code();
  }
  trainer_.warnings.repeat(out_);
  if (progress_.iteration >= training_.train_iters) warn_training_is_complete();
  print_event("before the start of training step");
  validator_.evaluate_if_due();
  while (progress_.iteration < training_.train_iters) {
    if (const auto reason = run_iteration()) {
      reporter_.close();
      if (!rejection_) saver_.calculate_section_timeouts(/*is_at_end=*/true);
      print_event("exiting program " + *reason);
      return rejection_.value_or(exit_.exit_code());
    }
  }
  reporter_.close();
  print_event("after training is done");
  saver_.save_at_end();
  saver_.check_replicas_if_due();
  validator_.evaluate_at_end();
  saver_.calculate_section_timeouts(/*is_at_end=*/true);
  return exit_.exit_code();
}

std::optional<std::string> TrainLoop::run_iteration() {
  update_num_microbatches();
  announce_mixture();
  if (is_skipped(progress_.iteration + 1)) {
    skip_iteration();
  } else {
    const double start = trainer_.clock.monotonic_s();
    {
      const SectionWatch::Scope section = trainer_.sections->enter_step();
      train_iteration();
      if (rejection_) return "at iteration " + std::to_string(progress_.iteration);
    }
    validator_.evaluate_if_due();
    if (deadline() != nullptr)
      deadline()->record_iteration_time(trainer_.clock.monotonic_s() - start);
    saver_.complete_if_written();
    saver_.save_if_due();
  }
  const auto reason = [&] {  // collective: a hung rank is detected at this call
    const SectionWatch::Scope section = trainer_.sections->enter_end_of_step();
    return exit_.reason(progress_.iteration);
  }();
  if (reason) saver_.save_at_end();
  // Saves come first, since they compare the replicas themselves. A complete run saves in run().
  if (reason || progress_.iteration < training_.train_iters) saver_.check_replicas_if_due();
  return reason;
}

/// Reports a run that was resumed at its end.
void TrainLoop::warn_training_is_complete() {
  if (progress_.iteration == 0) return;
  const std::string place = progress_.iteration == training_.train_iters ? "at" : "after";
  std::string flag = "--train-iters", length = std::to_string(training_.train_iters);
  if (training_.train_epochs) {
    flag = "--train-epochs", length = format("%g", *training_.train_epochs);
  } else if (training_.train_samples > 0) {
    flag = "--train-samples", length = std::to_string(training_.train_samples);
  }
  out_ << "WARNING: the loaded checkpoint is of iteration " << progress_.iteration << ", " << place
       << " the end of training at iteration " << training_.train_iters << " (" << flag << ' '
       << length << "): there is nothing to train. Give a larger " << flag << std::endl;
}

/// Says which mixture of the training sources the next step begins.
void TrainLoop::announce_mixture() {
  const BlendSchedule& mixtures = trainer_.data.mixtures;
  for (std::size_t i = 1; i < mixtures.phases.size(); ++i) {
    if (mixtures.phases[i].span.begin == progress_.iteration)
      console_.lines() << "the mixture of the training data changes: "
                       << blend_phase_line(mixtures, i) << std::endl;
  }
}

/// Sets the batch of the next step. As in Megatron, saves a checkpoint before the number of
/// microbatches changes.
void TrainLoop::update_num_microbatches() {
  const StepBatch next = plan_.batches.at(progress_.consumed_train_samples);
  if (next == state_.batch) return;
  if (next.num_microbatches != state_.batch.num_microbatches && progress_.iteration > 0)
    saver_.try_to_save();
  console_.lines() << "batch size changes from " << state_.batch.running_batch_size << " to "
                   << next.running_batch_size << " after " << progress_.consumed_train_samples
                   << " samples" << std::endl;
  state_.batch = next;
  trainer_.sections->set_load({plan_.rank.world.size, next.num_microbatches});
}

/// Runs the step under the rerun state machine. When training diverges, saves the last good weights
/// for diagnosis.
GuardedStep::Outcome TrainLoop::run_step(const TrainStepContext& parts,
                                         const TrainStepOptions& options) {
  try {
    return guarded_.run(parts, options);
  } catch (const NonFiniteError&) {
    saver_.try_to_save();
    throw;
  }
}

void TrainLoop::train_iteration() {
  if (trainer_.communicators != nullptr)
    trainer_.communicators->note_iteration(progress_.iteration + 1);
  reporter_.begin_step();
  const double start = trainer_.clock.monotonic_s();
  const TrainStepContext parts{*state_.model,        *state_.weights,          *state_.optimizer,
                               *trainer_.data.train, trainer_.timers,          plan_.rank,
                               plan_.pipeline,       reporter_.step_listener()};
  TrainStepOptions options;
  options.iteration = progress_.iteration + 1;
  options.num_microbatches = state_.batch.num_microbatches;
  options.first_ordinal = progress_.consumed_train_samples;
  options.calculate_per_token_loss = training_.calculate_per_token_loss;
  options.check_for_nan = training_.check_for_nan_in_loss_and_grad;
  options.update.lr = state_.scheduler.lr();
  options.update.decoupled_lr = state_.scheduler.decoupled_lr();
  options.update.weight_decay = state_.scheduler.weight_decay();
  options.update.count_zeros = plan_.settings.logger->log_num_zeros_in_grad;
  options.log_max_attention_logit = plan_.settings.logger->log_max_attention_logit;
  if (const OptimizerConfig& optimizer = *plan_.settings.optimizer; optimizer.qk_clip)
    options.qk_clip = {.alpha = optimizer.qk_clip_alpha, .threshold = optimizer.qk_clip_threshold};
  options.non_finite_checkpoint = state_.non_finite_checkpoint;
  const GuardedStep::Outcome outcome = run_step(parts, options);
  rejection_ = outcome.exit_code;
  if (outcome.save) saver_.save_again();
  if (rejection_) return;
  const TrainStepResult& step = outcome.step;
  if (step.update.applied) state_.scheduler.step(state_.batch.running_batch_size);
  progress_.floating_point_operations += plan_.flops(state_.batch);
  count_iteration(state_.batch.global_batch_size - state_.batch.running_batch_size);
  reporter_.report(step, trainer_.clock.monotonic_s() - start);
  expert_placement_.observe(step.routing);
  if (const auto line = expert_placement_.move_if_due(progress_.iteration))
    console_.lines() << ' ' << *line << std::endl;
}

void TrainLoop::skip_iteration() {
  console_.lines() << "skipping iteration " << progress_.iteration + 1
                   << ": its samples are passed over" << std::endl;
  next_step(*trainer_.data.train, state_.batch.num_microbatches);
  count_iteration(state_.batch.running_batch_size);
}

void TrainLoop::count_iteration(std::int64_t skipped_samples) {
  ++progress_.iteration;
  progress_.consumed_train_samples += state_.batch.running_batch_size;
  progress_.skipped_train_samples += skipped_samples;
  progress_.scheduler_num_steps = state_.scheduler.num_steps();
}

int run_loop(Trainer& trainer, std::ostream& out) {
  try {
    return TrainLoop(trainer, out).run();
  } catch (...) {
    rethrow_with_memory_report(trainer.plan, trainer.state);
  }
}

}  // namespace

int train(Trainer& trainer, std::ostream& out) {
  const int code = run_loop(trainer, out);
  trainer.folders = {};  // releases the locks: the run is over
  return code;
}

}  // namespace megatron
