// The flags of the loop: batches, length of the run, evaluation, stopping, precision.
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

void add_batch_size_fields(FieldTable<TrainingConfig>& t) {
  using Config = TrainingConfig;
  t.group("Batch size over time");
  t.field("rampup_batch_size", &Config::rampup_batch_size,
          "first batch size, increment, and samples until --global-batch-size is reached")
      .at_least(1)
      .at_most(kMaxSamples)
      .value_name("START INCREMENT SAMPLES");
  t.field("step_batch_size_schedule", &Config::step_batch_size_schedule,
          "\"0:768 250B:1536\": from these tokens on, these batch sizes")
      .value_name("TOKENS:SIZE ...");
  t.field("decrease_batch_size_if_needed", &Config::decrease_batch_size_if_needed,
          "round a batch size down to a multiple of the micro batch size");
}

void add_evaluation_fields(FieldTable<TrainingConfig>& t) {
  using Config = TrainingConfig;
  t.group("Evaluation");
  t.field("eval_iters", &Config::eval_iters, "iterations of one evaluation")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("eval_interval", &Config::eval_interval,
          "iterations between evaluations; none: no evaluation")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("start_eval_at_iter", &Config::start_eval_at_iter,
          "first training iteration that may be evaluated")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("eval_global_batch_size", &Config::eval_global_batch_size,
          "samples in one iteration of evaluation; none: --global-batch-size")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("eval_micro_batch_size", &Config::eval_micro_batch_size,
          "samples in one forward pass of evaluation; none: --micro-batch-size")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("full_validation", &Config::full_validation,
          "evaluate on the whole validation set each time");
  t.field("multiple_validation_sets", &Config::multiple_validation_sets,
          "a loss for each prefix of --valid-data-path");
  t.field("validation_set_names", &Config::validation_set_names,
          "names of these sets in the log, in place of 0, 1, ...")
      .value_name("NAME");
}

}  // namespace

const FieldTable<TrainingConfig>& training_table() {
  using Config = TrainingConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Training");
    t.field("micro_batch_size", &Config::micro_batch_size, "samples in one forward pass")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("global_batch_size", &Config::global_batch_size,
            "samples in one step; 0: the micro batch size x data-parallel ranks")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("seq_length", &Config::seq_length, "tokens in a sample")
        .at_least(1)
        .alias("encoder-seq-length")
        .at_most(kMaxSize);
    t.field("train_iters", &Config::train_iters, "steps of the whole run")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("train_samples", &Config::train_samples,
            "samples of the whole run, in place of --train-iters")
        .at_least(0)
        .at_most(kMaxSamples);
    t.field("seed", &Config::seed, "seed of weights, dropout and data order").at_least(1);
    t.field("deterministic_mode", &Config::deterministic_mode,
            "the same bits from any number of threads; what cannot give them is refused");
    t.field("calculate_per_token_loss", &Config::calculate_per_token_loss,
            "average the loss over the tokens of the global batch");
    t.field("check_for_nan_in_loss_and_grad", &Config::check_for_nan_in_loss_and_grad,
            "do not stop at a loss or gradient that is not finite");
    t.field("iterations_to_skip", &Config::iterations_to_skip,
            "iterations whose data is passed over, counted from 1")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("skip_train", &Config::skip_train, "evaluate the loaded model, and train nothing");
    t.field("exit_interval", &Config::exit_interval, "stop after an iteration divisible by this")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("exit_duration_in_mins", &Config::exit_duration_in_mins,
            "save and stop after so many minutes")
        .above(0);
    t.field("exit_signal", &Config::exit_signal,
            "a further signal to save and stop at; SIGTERM, SIGUSR1 and SIGINT always are")
        .choices(
            {"SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGXCPU"});
    add_precision_fields(t);
    add_batch_size_fields(t);
    add_evaluation_fields(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
