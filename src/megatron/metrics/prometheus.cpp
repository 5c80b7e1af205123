#include "megatron/metrics/prometheus.h"

#include <fstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/wall_clock.h"
#include "megatron/config/settings.h"
#include "megatron/metrics/exposition_writer.h"

namespace megatron {
namespace {

void write_losses(ExpositionWriter& out, const NamedLosses& losses) {
  if (losses.empty()) return;
  out.family("megatron_training_loss", "gauge", "Loss of the last step.");
  for (const auto& [name, value] : losses) out.sample(value, labels({{"loss", name}}));
}

void write_mfu(ExpositionWriter& out, const ThroughputMetrics& rates) {
  if (!rates.mfu && !rates.mfu_causal) return;
  out.family("megatron_training_mfu_ratio", "gauge",
             "Model FLOP/s over the device's peak, with full or causal attention counted.");
  if (rates.mfu) out.sample(*rates.mfu, labels({{"attention", "full"}}));
  if (rates.mfu_causal) out.sample(*rates.mfu_causal, labels({{"attention", "causal"}}));
}

void write_traffic(ExpositionWriter& out, const std::vector<AxisCommStats>& traffic) {
  if (traffic.empty()) return;
  out.family("megatron_training_communication_bytes", "gauge",
             "Bytes of the last step's collectives on rank 0.");
  for (const AxisCommStats& axis : traffic)
    out.sample(static_cast<double>(axis.bytes), labels({{"axis", axis.axis}}));
  out.family("megatron_training_communication_exposed_seconds", "gauge",
             "Time of the last step in which rank 0 waited for others.");
  for (const AxisCommStats& axis : traffic)
    out.sample(axis.exposed_ms / 1000, labels({{"axis", axis.axis}}));
}

void write_stragglers(ExpositionWriter& out, const StragglerMetrics& metrics) {
  out.family("megatron_training_slowest_rank_seconds", "gauge",
             "Own time per step of the slowest rank, without waits for other ranks.");
  for (const PartTimes& part : metrics.parts)
    out.sample(part.slowest.back().seconds, labels({{"part", part.part}}));
  out.family("megatron_training_fastest_rank_seconds", "gauge",
             "Own time per step of the fastest rank, without waits for other ranks.");
  for (const PartTimes& part : metrics.parts)
    out.sample(part.fastest.front().seconds, labels({{"part", part.part}}));
  out.gauge("megatron_training_stragglers", "Ranks that are slower than their peers now.",
            static_cast<double>(metrics.stragglers.size()));
  if (metrics.stragglers.empty()) return;
  out.family("megatron_training_straggler_ratio", "gauge",
             "Own time of a slow rank over that of its peers.");
  for (const Straggler& straggler : metrics.stragglers) {
    for (const SlowPart& part : straggler.parts)
      out.sample(part.ratio, labels({{"rank", std::to_string(straggler.rank)},
                                     {"host", straggler.host},
                                     {"part", part.part}}));
  }
}

void write_step(ExpositionWriter& out, const StepMetrics& step) {
  write_traffic(out, step.traffic);
  out.gauge("megatron_training_iteration", "Iterations done.", static_cast<double>(step.iteration));
  out.gauge("megatron_training_iterations_planned", "Iterations of the whole run.",
            static_cast<double>(step.train_iters));
  out.gauge("megatron_training_consumed_samples", "Samples trained on.",
            static_cast<double>(step.consumed_samples));
  out.gauge("megatron_training_global_batch_size", "Samples in a step.",
            static_cast<double>(step.global_batch_size));
  write_losses(out, step.losses);
  out.gauge("megatron_training_learning_rate", "Learning rate of the next step.",
            step.learning_rate);
  out.gauge("megatron_training_decoupled_learning_rate",
            "Learning rate of embedding and output layer.", step.decoupled_learning_rate);
  out.gauge("megatron_training_loss_scale", "Loss scale of the next step.", step.loss_scale);
  out.gauge("megatron_training_grad_norm", "Norm of the gradient before clipping.", step.grad_norm);
  out.gauge("megatron_training_params_norm", "Norm of the parameters.", step.params_norm);
  out.gauge("megatron_training_grad_zeros", "Zeros in the gradient.", step.num_zeros);
  out.gauge("megatron_training_max_attention_logit", "Largest score of attention in the step.",
            step.max_attention_logit);
  out.gauge("megatron_training_step_duration_seconds", "Time of the last step.", step.elapsed_s);
  out.gauge("megatron_training_tokens_per_second", "Tokens per second in the last step.",
            step.throughput.tokens_per_second);
  out.gauge("megatron_training_flops_per_second", "Model FLOP/s per device in the last step.",
            step.throughput.flops_per_second);
  write_mfu(out, step.throughput);
  if (step.stragglers) write_stragglers(out, *step.stragglers);
  if (!step.memory) return;
  out.gauge("megatron_training_memory_reserved_bytes",
            "Memory held: resident on a CPU, the allocator's on a GPU.",
            step.memory->reserved_bytes);
  out.gauge("megatron_training_memory_allocated_bytes", "Memory in use.",
            step.memory->allocated_bytes);
}

}  // namespace

void PrometheusCollector::add(const StepMetrics& step) {
  const std::lock_guard lock(mutex_);
  const std::optional<StragglerMetrics> last_stragglers = std::move(step_.stragglers);
  step_ = step;
  if (!step_.stragglers) step_.stragglers = last_stragglers;  // they are measured at times only
  ++steps_;
  skipped_updates_ += step.is_skipped ? 1 : 0;
  last_step_time_ = unix_seconds();
}

void PrometheusCollector::add(const EvaluationMetrics& evaluation) {
  const std::lock_guard lock(mutex_);
  evaluations_[evaluation.split + evaluation.suffix] = evaluation.losses;
}

std::string PrometheusCollector::text() const {
  const std::lock_guard lock(mutex_);
  ExpositionWriter out;
  if (steps_ > 0) {
    write_step(out, step_);
    out.gauge("megatron_training_last_step_timestamp_seconds",
              "When the last step ended, in seconds since 1970.", last_step_time_);
  }
  out.counter("megatron_training_steps_total", "Steps since this process started.",
              static_cast<double>(steps_));
  out.counter("megatron_training_skipped_updates_total",
              "Updates skipped since this process started.", static_cast<double>(skipped_updates_));
  if (!evaluations_.empty())
    out.family("megatron_evaluation_loss", "gauge", "Loss of the last evaluation of each split.");
  for (const auto& [split, losses] : evaluations_) {
    for (const auto& [name, value] : losses)
      out.sample(value, labels({{"loss", name}, {"split", split}}));
  }
  return std::move(out).text();
}

void write_prometheus_file(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file << text << std::flush;
  std::error_code error;
  if (file) fs::rename(temporary, path, error);
  if (!file || error) {
    throw UserError(
        {"--prometheus-file " + path.string() + " cannot be written", error ? error.message() : "",
         "check that its folder exists and is writable, and the free space of its disk"});
  }
}

}  // namespace megatron
