// The flags of what a run shows and leaves: log lines, timers, TensorBoard, Prometheus, memory,
// profile.
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

using Config = LoggerConfig;

void add_log_fields(FieldTable<Config>& t) {
  t.group("Logging");
  t.field("log_interval", &Config::log_interval, "iterations between log lines")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("log_throughput", &Config::log_throughput, "add TFLOP/s and MFU to the log line");
  t.field("log_params_norm", &Config::log_params_norm, "add the norm of the parameters");
  t.field("log_num_zeros_in_grad", &Config::log_num_zeros_in_grad,
          "add the number of zeros in the gradient");
  t.field("log_layer_norms_interval", &Config::log_layer_norms_interval,
          "iterations between tables of each layer's norms of weights, gradients and activations")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("log_progress", &Config::log_progress,
          "write progress.txt in --save: starts, checkpoints, throughput");
  t.field("timing_log_level", &Config::timing_log_level,
          "0: iterations; 1: coarse timers; 2: fine timers")
      .at_least(0)
      .at_most(2);
  t.field("timing_log_option", &Config::timing_log_option, "statistic of the timers over ranks")
      .choices({"max", "minmax", "all"});
}

void add_memory_fields(FieldTable<Config>& t) {
  t.field("log_memory", &Config::log_memory,
          "say where the bytes are, part by part, after iterations 1 and 2 and at "
          "--log-memory-interval");
  t.field("log_memory_interval", &Config::log_memory_interval,
          "iterations between lines about memory")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("log_device_memory_used", &Config::log_device_memory_used,
          "add the memory of the whole device that is in use");
}

void add_tensorboard_fields(FieldTable<Config>& t) {
  t.group("TensorBoard");
  t.field("tensorboard_dir", &Config::tensorboard_dir,
          "folder of event files, and of metrics.jsonl when not under --save")
      .value_name("DIR");
  t.field("tensorboard_log_interval", &Config::tensorboard_log_interval,
          "iterations between points")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("tensorboard_queue_size", &Config::tensorboard_queue_size,
          "events kept in memory before they are written")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("log_timers_to_tensorboard", &Config::log_timers_to_tensorboard,
          "chart the timers, iteration time and throughput");
  t.field("log_loss_scale_to_tensorboard", &Config::log_loss_scale_to_tensorboard,
          "do not chart the loss scale");
  t.field("log_validation_ppl_to_tensorboard", &Config::log_validation_ppl_to_tensorboard,
          "chart the perplexity of evaluations");
  t.field("log_memory_to_tensorboard", &Config::log_memory_to_tensorboard, "chart the memory");
  t.field("log_world_size_to_tensorboard", &Config::log_world_size_to_tensorboard,
          "chart the number of ranks");
}

void add_prometheus_fields(FieldTable<Config>& t) {
  t.group("Prometheus");
  t.field("prometheus_file", &Config::prometheus_file,
          "metrics as text, replaced after every step, for the node exporter's textfile collector")
      .value_name("FILE");
  t.field("prometheus_port", &Config::prometheus_port, "answer GET /metrics on this port")
      .at_least(1)
      .at_most(65535);
}

void add_profile_fields(FieldTable<Config>& t) {
  t.group("Profile");
  t.field("profile", &Config::profile,
          "record some steps: a table of operators, and a trace for ui.perfetto.dev");
  t.field("profile_step_start", &Config::profile_step_start,
          "iterations done when recording starts")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("profile_step_end", &Config::profile_step_end, "iterations done when recording ends")
      .at_least(1)
      .at_most(kMaxSize);
  t.field("profile_ranks", &Config::profile_ranks, "ranks that record; none given: all")
      .at_least(0)
      .at_most(kMaxSize);
  t.field("profile_dir", &Config::profile_dir,
          "folder of the trace; default: profile in --tensorboard-dir, or else in --save")
      .value_name("DIR");
  t.field("trace", &Config::trace,
          "timeline of a run's pipeline, one track per rank, for ui.perfetto.dev, and measured "
          "beside predicted bubbles")
      .value_name("DIR");
}

}  // namespace

const FieldTable<LoggerConfig>& logger_table() {
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    add_log_fields(t);
    add_memory_fields(t);
    add_tensorboard_fields(t);
    add_prometheus_fields(t);
    add_profile_fields(t);
    return t;
  }();
  return table;
}

}  // namespace megatron
