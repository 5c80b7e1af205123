// Declares the flags of logging and profiling: log lines, timers, memory, TensorBoard, Prometheus
// and profiles.
#include "megatron/config/logger_config.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

using Config = LoggerConfig;

void add_log_fields(FieldTable<Config>& t) {
  t.group("Logging");
  t.field("log_interval", &Config::log_interval, "number of iterations between log lines")
      .between(1, kMaxSize);
  t.field("log_throughput", &Config::log_throughput, "log TFLOP/s and MFU");
  t.field("log_params_norm", &Config::log_params_norm, "log the norm of the parameters");
  t.field("log_num_zeros_in_grad", &Config::log_num_zeros_in_grad,
          "log the number of zeros in the gradient");
  t.field("log_max_attention_logit", &Config::log_max_attention_logit,
          "log the largest score of attention in each step");
  t.field("log_layer_norms_interval", &Config::log_layer_norms_interval,
          "number of iterations between tables of the norms of each layer's weights, gradients "
          "and activations")
      .between(1, kMaxSize);
  t.field("log_progress", &Config::log_progress,
          "record starts, checkpoints and throughput in progress.txt in --save")
      .note(kNothingIsSaved);
  t.field("timing_log_level", &Config::timing_log_level,
          "detail of the timers; 0: iterations only; 1: coarse timers; 2: fine timers")
      .between(0, 2);
  t.field("timing_log_option", &Config::timing_log_option,
          "which timings to print; max: the slowest rank; minmax: the fastest and the slowest "
          "rank; all: every rank")
      .choices({"max", "minmax", "all"});
}

void add_straggler_fields(FieldTable<Config>& t) {
  t.field("log_straggler", &Config::log_straggler,
          "time each part of a step on every rank without the waits for other ranks, print the "
          "fastest and the slowest rank of each part, and name ranks that are slower than their "
          "peers")
      .alias("straggler-detector-enabled");
  t.field("straggler_minmax_count", &Config::straggler_minmax_count,
          "number of fastest and of slowest ranks that --log-straggler prints for each part")
      .between(1, kMaxSize);
  t.field("disable_straggler_on_startup", &Config::disable_straggler_on_startup,
          "with --log-straggler, print nothing until a request to --straggler-ctrlr-port");
  t.field("straggler_ctrlr_port", &Config::straggler_ctrlr_port,
          "port of rank 0 on which each HTTP request switches the report of --log-straggler on or "
          "off")
      .between(1, 65535);
}

void add_memory_fields(FieldTable<Config>& t) {
  t.field("log_memory", &Config::log_memory,
          "print the memory use of each part after iterations 1 and 2 and every "
          "--log-memory-interval iterations");
  t.field("log_memory_interval", &Config::log_memory_interval,
          "number of iterations between reports of the memory use; with --log-memory, of each part")
      .between(1, kMaxSize);
  t.field("log_device_memory_used", &Config::log_device_memory_used,
          "log the memory that is in use on the whole device");
}

void add_tensorboard_fields(FieldTable<Config>& t) {
  t.group("TensorBoard");
  t.field("tensorboard_dir", &Config::tensorboard_dir,
          "folder of the event files and of metrics.jsonl; without it metrics.jsonl is in --save")
      .value_name("DIR")
      .note(kOnlyEvaluates);
  t.field("tensorboard_log_interval", &Config::tensorboard_log_interval,
          "number of iterations between points of a chart")
      .between(1, kMaxSize);
  t.field("tensorboard_queue_size", &Config::tensorboard_queue_size,
          "largest number of events kept in memory before they are written")
      .between(1, kMaxSize);
  t.field("log_timers_to_tensorboard", &Config::log_timers_to_tensorboard,
          "write the timers, the iteration time and the throughput to TensorBoard");
  t.field("log_loss_scale_to_tensorboard", &Config::log_loss_scale_to_tensorboard,
          "do not write the loss scale to TensorBoard");
  t.field("log_validation_ppl_to_tensorboard", &Config::log_validation_ppl_to_tensorboard,
          "write the perplexity of evaluations to TensorBoard");
  t.field("log_memory_to_tensorboard", &Config::log_memory_to_tensorboard,
          "write the memory use to TensorBoard");
  t.field("log_world_size_to_tensorboard", &Config::log_world_size_to_tensorboard,
          "write the number of ranks to TensorBoard");
}

void add_prometheus_fields(FieldTable<Config>& t) {
  t.group("Prometheus");
  t.field("prometheus_file", &Config::prometheus_file,
          "write metrics to this file after every step, for the node exporter's textfile collector")
      .value_name("FILE");
  t.field("prometheus_port", &Config::prometheus_port, "serve metrics at /metrics on this port")
      .between(1, 65535);
  t.field(
       "prometheus_host", &Config::prometheus_host,
       "serve them at this address of the host; 0.0.0.0: at every address, for whoever can reach "
       "the host")
      .value_name("ADDRESS");
}

void add_profile_fields(FieldTable<Config>& t) {
  t.group("Profile");
  t.field("profile", &Config::profile,
          "profile some steps: print a table of operators and write a trace for ui.perfetto.dev");
  t.field("profile_step_start", &Config::profile_step_start,
          "number of finished iterations at which recording starts")
      .between(0, kMaxSize);
  t.field("profile_step_end", &Config::profile_step_end,
          "number of finished iterations at which recording ends")
      .between(1, kMaxSize);
  t.field("profile_ranks", &Config::profile_ranks, "ranks to profile; default: all")
      .between(0, kMaxSize);
  t.field("profile_dir", &Config::profile_dir,
          "folder of the profile; default: profile in --tensorboard-dir, else in --save")
      .value_name("DIR");
  t.field("trace", &Config::trace,
          "write a timeline of the pipeline, with one track per rank, for ui.perfetto.dev to this "
          "folder, and print the measured and the predicted pipeline bubble")
      .value_name("DIR")
      .note(kOnlyEvaluates);
}

}  // namespace

const FieldTable<LoggerConfig>& logger_table() {
  return field_table<Config>([](auto& t) {
    t.following().left_out_of_check();
    add_log_fields(t);
    add_straggler_fields(t);
    add_memory_fields(t);
    add_tensorboard_fields(t);
    add_prometheus_fields(t);
    add_profile_fields(t);
  });
}

}  // namespace megatron
