#include "megatron/training/resilience/reruns/guarded_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/per_layer_norms.h"
#include "megatron/training/resilience/diagnosis/explanation.h"
#include "megatron/training/resilience/diagnosis/saved_batch.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

fs::path folder_of(const Settings& settings) {
  if (!settings.checkpoint->save.empty()) return settings.checkpoint->save;
  return settings.logger->tensorboard_dir.empty() ? fs::path(".")
                                                  : fs::path(settings.logger->tensorboard_dir);
}

std::string precision(const TrainingConfig& training) {
  return training.bf16 ? "bf16" : training.fp16 ? "fp16" : "fp32";
}

const ResultCheck kNanLoss{.message = "found NaN in local forward loss calculation",
                           .rejects = ResultCheck::Rejects::nan};
const ResultCheck kInfLoss{.message = "found Inf in local forward loss calculation",
                           .rejects = ResultCheck::Rejects::inf};
const ResultCheck kSpikyLoss{.message = "Spiky loss",
                             .rejects = ResultCheck::Rejects::large,
                             .context = "loss",
                             .fatal = false};
const ResultCheck kNanGrad{.message =
                               "found NaN in local grad norm for bucket #0 in backward pass before "
                               "data-parallel communication collective",
                           .rejects = ResultCheck::Rejects::nan,
                           .tolerance = 0.001};
const ResultCheck kInfGrad{.message =
                               "found Inf in local grad norm for bucket #0 in backward pass before "
                               "data-parallel communication collective",
                           .rejects = ResultCheck::Rejects::inf,
                           .tolerance = 0.001};
const ResultCheck kLargeGrad{.message =
                                 "found unexpected large grads in bucket #0 in backward pass "
                                 "before data-parallel communication collective",
                             .rejects = ResultCheck::Rejects::large,
                             .context = "grads",
                             .tolerance = 0.001,
                             .fatal = false};

/// Collective over the world when the device is a GPU.
ComputeLocation location_of(const Rank& rank) {
  if (rank.device.is_cpu()) return {.node = host_name(), .has_alternative = false};
  ComputeLocation location{.node = host_name(), .device = rank.device.index()};
  std::string gpus;
  for (const std::string& gpu : all_gather_unique_names(
           {rank.world, rank.device}, {location.node + " " + std::to_string(location.device)}))
    gpus += gpu + "\n";
  location.gpus = checksum_hex(checksum(gpus));
  return location;
}

RerunStateMachine::Options machine_options(const TrainingPlan& plan, std::ostream& out,
                                           std::function<bool(bool)> any_rank) {
  const RerunConfig& config = *plan.settings.rerun;
  return {
      .mode = rerun_mode(config.rerun_mode),
      .error_injection_rate = config.error_injection_rate,
      .error_injection_type = rerun_diagnostic(config.error_injection_type),
      .seed = plan.rank.seed,
      // The results are those of all ranks, so one line says it.
      .tracker_filename = plan.rank.world.rank == 0 ? config.result_rejected_tracker_filename : "",
      .place = location_of(plan.rank),
      .log = [&out](const std::string& message) { out << message << std::endl; },
      .any_rank = std::move(any_rank)};
}

/// Returns the root of the sum of squares over all parameters, in float64. Collective over the
/// shard and model axes.
double gradient_norm(const TrainStepContext& context) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const double norm : parameter_norms(context.optimizer.main_parameters().sums(),
                                           context.weights, piece_gradients(context.weights)))
    sum += norm * norm;
  return std::sqrt(sum);
}

std::vector<double> read_losses(const StepLosses& losses) {
  const at::Tensor sums = losses.sums.sum(0).cpu();
  return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
}

/// Returns the result of a step without an update. Collective over the shard and model axes.
TrainStepResult failed_step(const TrainStepContext& context, const std::vector<double>& losses) {
  const at::NoGradGuard no_grad;
  const ParameterSums& sums = context.optimizer.main_parameters().sums();
  TrainStepResult result;
  result.microbatch_losses = losses;
  result.update.applied = false;
  const std::vector<double> norms =
      parameter_norms(sums, context.weights, piece_gradients(context.weights));
  const auto first = std::ranges::find_if(norms, [](double norm) { return !std::isfinite(norm); });
  if (first != norms.end())
    result.update.non_finite_parameter =
        sums.names()[static_cast<std::size_t>(first - norms.begin())];
  return result;
}

/// The weights that the run had at the failed step.
struct StepWeights {
  std::string checkpoint_root = {};  ///< empty: initial weights, drawn from the seed
  std::int64_t iteration = 0;
};

/// Returns the weights before the failed step. If no step was done since `first_iteration`, they
/// come from --load or the seed; otherwise from the checkpoint that the run saves to --save on
/// exit. Returns nullopt without --save.
std::optional<StepWeights> step_weights(const TrainingPlan& plan, const TrainingProgress& progress,
                                        std::int64_t first_iteration) {
  const CheckpointConfig& config = *plan.settings.checkpoint;
  const std::int64_t iteration = progress.iteration;
  if (iteration == first_iteration) {
    if (!plan.source) return StepWeights{};
    return StepWeights{config.load, plan.source->iteration};
  }
  if (config.save.empty()) return std::nullopt;
  return StepWeights{config.save, iteration};
}

/// Writes the microbatch to --save, else --tensorboard-dir, else the current folder. Returns lines
/// for the error message. It does not throw when the file cannot be written, so that the original
/// error is still reported.
std::string save_suspect_microbatch(const TrainingPlan& plan, const TrainingProgress& progress,
                                    const SuspectMicrobatch& suspect, std::int64_t first_iteration,
                                    const std::string& cause) {
  const Settings& settings = plan.settings;
  if (context_axis(suspect.microbatch, plan.rank).size > 1)
    return "\n  the microbatch is not saved: with --context-parallel-size or "
           "--hybrid-context-parallel each rank holds only part of its sequences; to save it, run "
           "again without that flag";
  const auto weights = step_weights(plan, progress, first_iteration);
  const bool in_checkpoint = weights && !weights->checkpoint_root.empty();
  const SavedBatch batch{
      .microbatch = suspect.microbatch,
      .iteration = progress.iteration + 1,
      .index = static_cast<std::int64_t>(suspect.index),
      .num_microbatches = suspect.num_microbatches,
      .gradient_scale = suspect.gradient_scale,
      .seed = plan.rank.seed,
      .vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
      .family = std::string(plan.family->name),
      .model = *settings.model,
      .precision = precision(*settings.training),
      .checkpoint_root = in_checkpoint ? fs::absolute(weights->checkpoint_root).string() : "",
      .checkpoint_iteration = weights ? weights->iteration : -1,
      .cause = cause};
  const fs::path path = saved_batch_path(folder_of(settings), batch);
  try {
    megatron::create_directories(path.parent_path());
    save_batch(path, batch);
  } catch (const std::exception& error) {
    return std::string("\n  the microbatch could not be saved: ") + error.what();
  }
  return "\n  the microbatch is saved; to replay it with a trace of every op: megatron replay " +
         path.string() + (weights ? "" : " --load DIR");
}

}  // namespace

GuardedStep::GuardedStep(const TrainingPlan& plan, TrainingState& state, std::ostream& out)
    : plan_(plan),
      state_(state),
      out_(out),
      machine_(machine_options(plan, out, [this](bool flag) { return any_rank(flag); })),
      first_iteration_(state.progress.iteration) {
  machine_.restore(*state.rerun_state, "the checkpoint's rerun state");
}

bool GuardedStep::any_rank(bool flag) const {
  if (!may_differ_) return flag;
  return all_reduce_max({plan_.rank.world, plan_.rank.device}, {flag ? 1.0 : 0.0},
                        "rejected results")[0] > 0;
}

/// Returns whether the host must read the results before the weights change. NaN and Inf need no
/// check here, because the update itself is skipped then.
bool GuardedStep::reads_before_update() const {
  const RerunConfig& config = *plan_.settings.rerun;
  return config.check_for_spiky_loss || config.check_for_large_grads ||
         machine_.mode() == RerunMode::report_stats || machine_.injects_errors() ||
         machine_.state() == RerunState::will_rerun_from_checkpoint;
}

GuardedStep::Outcome GuardedStep::run(const TrainStepContext& context,
                                      const TrainStepOptions& options) {
  Outcome outcome;
  const std::vector<Microbatch> batch = fetch_microbatches(context, options);
  const Step step{context, options, batch};
  std::optional<PerLayerNormRecorder> norms;
  const auto& interval = plan_.settings.logger->log_layer_norms_interval;
  if (interval && options.iteration % *interval == 0)
    norms.emplace(context.model, context.weights, context.optimizer);
  const StepLosses losses = forward_backward(context, options, batch);
  if (norms) norms->after_backward();
  machine_.begin(options.iteration);
  const bool reads_first = reads_before_update(),
             is_guarded = machine_.mode() != RerunMode::disabled;
  may_differ_ = reads_first;
  if (is_guarded && reads_first) {
    validate_and_rerun(step, {read_losses(losses), gradient_norm(context)}, outcome);
    if (outcome.exit_code) return outcome;
  }
  update_weights(context, options, losses);
  outcome.step = read_step(context, options, losses);
  outcome.step.hybrid_context = hybrid_context_of(batch);
  if (norms)
    outcome.step.layer_norms = std::make_shared<const PerLayerNorms>(norms->after_update());
  // All ranks have applied the update, or none has.
  may_differ_ = may_differ_ || !outcome.step.update.applied;
  if (is_guarded && !reads_first)
    validate_and_rerun(step, {outcome.step.microbatch_losses, outcome.step.update.grad_norm},
                       outcome);
  if (!outcome.exit_code && options.check_for_nan && !outcome.step.update.applied)
    throw_diverged(step, outcome.step);
  return outcome;
}

void GuardedStep::validate_and_rerun(const Step& step, Results results, Outcome& outcome) {
  machine_.should_run();
  validate(results, step.options);
  while (machine_.should_run()) {
    const StepLosses losses = forward_backward(step.context, step.options, step.batch);
    results = {read_losses(losses), gradient_norm(step.context)};
    validate(results, step.options);
  }
  const RerunStateMachine::Verdict verdict = machine_.verdict();
  if (verdict.exit) stop(step, results, verdict, outcome);
}

void GuardedStep::validate(const Results& results, const TrainStepOptions& options) {
  const RerunConfig& config = *plan_.settings.rerun;
  for (const double loss : results.losses) {
    if (options.check_for_nan) {
      machine_.validate(loss, kNanLoss);
      machine_.validate(loss, kInfLoss);
    }
    if (config.check_for_spiky_loss) machine_.validate(loss, kSpikyLoss);
  }
  if (options.check_for_nan) {
    machine_.validate(results.grad_norm, kNanGrad);
    machine_.validate(results.grad_norm, kInfGrad);
  }
  if (config.check_for_large_grads) machine_.validate(results.grad_norm, kLargeGrad);
}

void GuardedStep::stop(const Step& step, const Results& results,
                       const RerunStateMachine::Verdict& verdict, Outcome& outcome) {
  state_.rerun_state = machine_.to_json();
  outcome.exit_code = verdict.exit_code;
  outcome.save = verdict.save;
  const bool is_rejected = machine_.has_rejected();
  out_ << (any_rank(is_rejected) == !any_rank(!is_rejected)
               ? explanation(step, results)
               : "Only some ranks have rejected a result that all of them compute: a rank is "
                 "defective\n")
       << std::flush;
  if (verdict.exit_code != kExitResumeToDisambiguate || !plan_.settings.checkpoint->save.empty())
    return;
  out_ << "Without --save there is no checkpoint to resume from: the diagnostic ends here"
       << std::endl;
  outcome.exit_code = kExitFailedOnResultValidation;
}

/// Returns what is wrong with the step's values; "" when they are finite (an injected error, or a
/// spike that was not reproduced).
std::string GuardedStep::explanation(const Step& step, const Results& results) {
  const bool losses_are_finite =
      std::ranges::all_of(results.losses, [](double loss) { return std::isfinite(loss); });
  if (losses_are_finite && std::isfinite(results.grad_norm)) {
    if (!machine_.is_reproducible() || machine_.rejected_message() != kSpikyLoss.message) return {};
    const auto index = static_cast<std::size_t>(machine_.rejected_sequence() - 1);
    const Microbatch& microbatch = step.batch.at(index);
    const std::string cause = "iteration " + std::to_string(step.options.iteration) +
                              ": the loss of " + sample_list(microbatch) + " is unexpectedly large";
    const SuspectMicrobatch suspect{
        .microbatch = microbatch,
        .index = index,
        .num_microbatches = static_cast<std::int64_t>(step.batch.size()),
        .gradient_scale = 1 / static_cast<double>(step.batch.size())};
    return diagnosis_text(suspect, cause) + "\n";
  }
  const NonFiniteError error = non_finite_step(step.context, step.options, step.batch,
                                               failed_step(step.context, results.losses));
  return diagnosis_text(error.suspect(), error.what()) + "\n";
}

std::string GuardedStep::diagnosis_text(const SuspectMicrobatch& suspect,
                                        const std::string& cause) {
  const Rank& rank = plan_.rank;
  const ObjectGroup group{rank.world, rank.device};
  const std::vector<std::vector<double>> here =
      all_gather_numbers(group, std::vector{suspect.is_here ? 1.0 : 0.0}, "diagnosis");
  const std::int64_t reporting_rank =
      std::ranges::find(here, 1.0, [](const auto& flags) { return flags[0]; }) - here.begin();
  std::string mine = rank.index == reporting_rank
                         ? cause + save_suspect_microbatch(plan_, state_.progress, suspect,
                                                           first_iteration_, cause)
                         : "";
  if (rank.world.size == 1) return mine;
  return "rank " + std::to_string(reporting_rank) + ": " +
         all_gather_strings(group, mine).at(static_cast<std::size_t>(reporting_rank));
}

void GuardedStep::throw_diverged(const Step& step, const TrainStepResult& result) {
  const NonFiniteError error = non_finite_step(step.context, step.options, step.batch, result);
  for (const double loss : result.microbatch_losses) {
    if (!std::isfinite(loss))
      machine_.track_without_rerun(loss, std::isnan(loss) ? kNanLoss : kInfLoss);
  }
  if (!std::isfinite(result.update.grad_norm))
    machine_.track_without_rerun(result.update.grad_norm,
                                 std::isnan(result.update.grad_norm) ? kNanGrad : kInfGrad);
  throw NonFiniteError(diagnosis_text(error.suspect(), error.what()), error.suspect());
}

}  // namespace megatron
