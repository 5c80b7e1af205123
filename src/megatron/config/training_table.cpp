// Declares the flags of the training loop: batches, length of the run, evaluation and stopping.
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr std::string_view kSteps = "each step takes different samples";
constexpr std::string_view kLength =
    "schedules that end with the run stretch; data sets are shuffled anew if they now need another "
    "number of epochs";

void add_batch_size_fields(FieldTable<TrainingConfig>& t) {
  using Config = TrainingConfig;
  t.group("Batch size over time");
  t.field("rampup_batch_size", &Config::rampup_batch_size,
          "ramp the batch size up: initial size, increment, and number of samples until "
          "--global-batch-size is reached")
      .between(1, kMaxSamples)
      .value_name("START INCREMENT SAMPLES")
      .breaks_resume(kSteps)
      .left_out_of_check("later batch sizes");
  t.field("step_batch_size_schedule", &Config::step_batch_size_schedule,
          "change the batch size after given numbers of tokens: \"0:768 250B:1536\" trains with "
          "768, and after 250 billion tokens with 1536")
      .value_name("TOKENS:SIZE ...")
      .breaks_resume(kSteps)
      .left_out_of_check("later batch sizes");
  t.field("decrease_batch_size_if_needed", &Config::decrease_batch_size_if_needed,
          "round batch sizes down to a multiple of micro batch size x data-parallel size")
      .breaks_resume(kSteps);
}

void add_evaluation_fields(FieldTable<TrainingConfig>& t) {
  using Config = TrainingConfig;
  t.group("Evaluation");
  t.field("eval_iters", &Config::eval_iters, "number of iterations of each evaluation")
      .between(0, kMaxSize);
  t.field("eval_interval", &Config::eval_interval,
          "number of iterations between evaluations; none: do not evaluate during training")
      .between(1, kMaxSize);
  t.field("start_eval_at_iter", &Config::start_eval_at_iter,
          "do not evaluate before this training iteration")
      .between(0, kMaxSize);
  t.field("eval_on_start", &Config::eval_on_start,
          "also evaluate before the first iteration, on the samples of the first evaluation");
  t.field("eval_global_batch_size", &Config::eval_global_batch_size,
          "number of samples per evaluation iteration; none: --global-batch-size")
      .between(1, kMaxSize);
  t.field("eval_micro_batch_size", &Config::eval_micro_batch_size,
          "number of samples per forward pass of evaluation; none: --micro-batch-size")
      .between(1, kMaxSize);
  t.field("full_validation", &Config::full_validation,
          "evaluate on the whole validation set each time");
  t.field("multiple_validation_sets", &Config::multiple_validation_sets,
          "evaluate each prefix of --valid-data-path separately");
  t.field("validation_set_names", &Config::validation_set_names,
          "names of the validation sets in the log; default: 0, 1, ...")
      .value_name("NAME");
}

void add_exit_fields(FieldTable<TrainingConfig>& t) {
  using Config = TrainingConfig;
  t.field("exit_interval", &Config::exit_interval,
          "save and stop at the first iteration that is a multiple of this")
      .between(1, kMaxSize);
  t.field("phase_transition_iterations", &Config::phase_transition_iterations,
          "iterations, with commas, after which a new phase of the data begins: the run saves and "
          "stops there, and continues with the flags of the next start (--data-path, --seq-length, "
          "rotary scaling). Each phase begins at the first sample of a data set of its own")
      .between(1, kMaxSize)
      .value_name("N,N,...")
      .breaks_resume(kOtherSamples);
  t.field("exit_duration_in_mins", &Config::exit_duration_in_mins,
          "save and stop after this many minutes")
      .above(0);
  t.field("exit_signal", &Config::exit_signal,
          "save and stop on this signal, in addition to SIGTERM, SIGUSR1 and SIGINT")
      .choices(
          {"SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGXCPU"});
}

}  // namespace

const FieldTable<TrainingConfig>& training_table() {
  using Config = TrainingConfig;
  return field_table<Config>([](auto& t) {
    t.group("Training");
    t.field("micro_batch_size", &Config::micro_batch_size,
            "number of samples per forward pass on each rank")
        .between(1, kMaxSize)
        .older_name("batch-size")
        .on_resume(kOtherSums);
    t.field("global_batch_size", &Config::global_batch_size,
            "number of samples per training step; 0: micro batch size x data-parallel size")
        .between(0, kMaxSize)
        .breaks_resume(kSteps);
    t.field("seq_length", &Config::seq_length, "number of tokens per sample")
        .between(1, kMaxSize)
        .alias("encoder-seq-length")
        .alias("sequence-length")
        .breaks_phase(
            "samples are cut differently: the number of consumed samples no longer tells which "
            "tokens were seen");
    t.field("train_iters", &Config::train_iters, "number of training steps of the whole run")
        .between(0, kMaxSize)
        .on_resume(kLength);
    t.field("train_samples", &Config::train_samples,
            "number of training samples of the whole run, instead of --train-iters")
        .between(0, kMaxSamples)
        .on_resume(kLength)
        .left_out_of_check();
    t.field("train_epochs", &Config::train_epochs,
            "number of passes over the training data, such as 3 or 0.5, instead of --train-iters; "
            "a last batch that is not full is left out")
        .alias("epochs")
        .above(0)
        .at_most(1e6)
        .on_resume(kLength)
        .left_out_of_check();
    t.field("seed", &Config::seed, "random seed of weights, dropout and data order")
        .at_least(1)
        .alias("random-seed")
        .breaks_resume("the order of the data and dropout differ from now on");
    t.field("deterministic_mode", &Config::deterministic_mode,
            "make results bitwise reproducible for any number of threads; refuse settings that "
            "cannot be");
    t.field("calculate_per_token_loss", &Config::calculate_per_token_loss,
            "average the loss over the tokens of the global batch")
        .breaks_resume("the loss is averaged differently");
    t.field("check_for_nan_in_loss_and_grad", &Config::check_for_nan_in_loss_and_grad,
            "do not stop if a loss or gradient is NaN or infinite")
        .alias("check-for-nan-in-grad");
    t.following().left_out_of_check();
    t.field("iterations_to_skip", &Config::iterations_to_skip,
            "iterations whose data is skipped, counted from 1")
        .between(1, kMaxSize)
        .applies_on_resume();
    t.field("skip_train", &Config::skip_train, "only evaluate the loaded model, without training");
    add_exit_fields(t);
    add_precision_fields(t);
    add_batch_size_fields(t);
    add_evaluation_fields(t);
  });
}

}  // namespace megatron
