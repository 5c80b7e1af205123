// The flags of the loop: batches, length of the run, evaluation, stopping, precision; logging; the parallel layout.
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<TrainingConfig>& training_table() {
  using Config = TrainingConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Training");
    t.field("micro_batch_size", &Config::micro_batch_size, "samples in one forward pass").at_least(1).at_most(kLargestSize);
    t.field("global_batch_size", &Config::global_batch_size, "samples in one step; 0: the micro batch size").at_least(0).at_most(kLargestSize);
    t.field("seq_length", &Config::seq_length, "tokens in a sample").at_least(1).alias("encoder-seq-length").at_most(kLargestSize);
    t.field("train_iters", &Config::train_iters, "steps of the whole run").at_least(0).at_most(kLargestSize);
    t.field("train_samples", &Config::train_samples, "samples of the whole run, in place of --train-iters").at_least(0).at_most(kMostSamples);
    t.field("seed", &Config::seed, "seed of weights, dropout and data order").at_least(1);
    t.field("calculate_per_token_loss", &Config::calculate_per_token_loss, "average the loss over the tokens of the global batch");
    t.field("check_for_nan_in_loss_and_grad", &Config::check_for_nan_in_loss_and_grad, "do not stop at a loss or gradient that is not finite");
    t.field("iterations_to_skip", &Config::iterations_to_skip, "iterations whose data is passed over, counted from 1")
        .at_least(1)
        .at_most(kLargestSize);
    t.field("exit_interval", &Config::exit_interval, "stop after an iteration divisible by this").at_least(1).at_most(kLargestSize);
    t.field("exit_duration_in_mins", &Config::exit_duration_in_mins, "save and stop after so many minutes").above(0);
    add_precision_fields(t);
    t.group("Evaluation");
    t.field("eval_iters", &Config::eval_iters, "iterations of one evaluation").at_least(0).at_most(kLargestSize);
    t.field("eval_interval", &Config::eval_interval, "iterations between evaluations; none: no evaluation").at_least(1).at_most(kLargestSize);
    return t;
  }();
  return table;
}

const FieldTable<LoggerConfig>& logger_table() {
  using Config = LoggerConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Logging");
    t.field("log_interval", &Config::log_interval, "iterations between log lines").at_least(1).at_most(kLargestSize);
    t.field("log_throughput", &Config::log_throughput, "add TFLOP/s to the log line");
    t.field("log_params_norm", &Config::log_params_norm, "add the norm of the parameters");
    t.field("log_num_zeros_in_grad", &Config::log_num_zeros_in_grad, "add the number of zeros in the gradient");
    t.field("timing_log_level", &Config::timing_log_level, "0: iterations; 1: coarse timers; 2: fine timers").at_least(0).at_most(2);
    t.field("timing_log_option", &Config::timing_log_option, "statistic of the timers over ranks").choices({"max", "minmax", "all"});
    t.field("tensorboard_dir", &Config::tensorboard_dir, "folder of the metrics, when not under --save").value_name("DIR");
    return t;
  }();
  return table;
}

const FieldTable<ParallelConfig>& parallel_table() {
  using Config = ParallelConfig;
  static const FieldTable<Config> table = [] {
    const char* one_rank = "without effect: this version runs on one rank";
    FieldTable<Config> t;
    t.group("Parallel layout");
    t.field("tensor_model_parallel_size", &Config::tensor_model_parallel_size, "ranks that share each layer").at_least(1);
    t.field("pipeline_model_parallel_size", &Config::pipeline_model_parallel_size, "ranks that share the layers of the model").at_least(1);
    t.field("context_parallel_size", &Config::context_parallel_size, "ranks that share each sequence").at_least(1);
    t.field("expert_model_parallel_size", &Config::expert_model_parallel_size, "ranks that share the experts").at_least(1);
    t.field("expert_tensor_parallel_size", &Config::expert_tensor_parallel_size, "ranks that share each expert").at_least(1);
    t.field("sequence_parallel", &Config::sequence_parallel, "split norms and dropout along the sequence").note(one_rank);
    t.field("use_distributed_optimizer", &Config::use_distributed_optimizer, "split the optimizer over data-parallel ranks").note(one_rank);
    t.field("distributed_backend", &Config::distributed_backend, "library of the communication between ranks").choices({"nccl", "gloo"});
    t.field("device", &Config::device, "where to compute; auto: the CPU in this version").choices({"auto", "cpu", "cuda"});
    return t;
  }();
  return table;
}

}  // namespace megatron
