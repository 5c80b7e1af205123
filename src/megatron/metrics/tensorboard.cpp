#include "megatron/metrics/tensorboard.h"

#include "megatron/config/logger_config.h"
#include "megatron/config/settings.h"

namespace megatron {
namespace {

void add_if(std::vector<TaggedValue>& values, const char* tag, const auto& value) {
  if (value) values.emplace_back(tag, static_cast<double>(*value));
}

EventFileWriter open_file(const LoggerConfig& config, std::int64_t iteration,
                          ExistingMetrics earlier) {
  const bool drops = iteration > 0 && earlier == ExistingMetrics::same_run;
  if (drops) drop_events_after(config.tensorboard_dir, iteration);
  return {config.tensorboard_dir, static_cast<std::size_t>(config.tensorboard_queue_size)};
}

}  // namespace

TensorBoard::TensorBoard(const LoggerConfig& config, std::int64_t iteration,
                         ExistingMetrics earlier)
    : config_(config), file_(open_file(config, iteration, earlier)) {
  if (iteration == 0) file_.add_session_start(0);
}

void TensorBoard::add_settings(const std::vector<std::pair<std::string, std::string>>& settings,
                               std::int64_t iteration) {
  for (const auto& [name, value] : settings)
    file_.add_text(name + "/text_summary", value, iteration);
  file_.flush();
}

void TensorBoard::add_over_both(const std::vector<TaggedValue>& values, std::int64_t iteration,
                                std::int64_t samples) {
  file_.add_scalars(values, iteration);
  std::vector<TaggedValue> over_samples = values;
  for (auto& [tag, value] : over_samples) tag += " vs samples";
  file_.add_scalars(over_samples, samples);
}

void TensorBoard::add(const StepMetrics& step) {
  if (step.iteration % config_.tensorboard_log_interval != 0) return;
  std::vector<TaggedValue> both{{"learning-rate", step.learning_rate},
                                {"batch-size", static_cast<double>(step.global_batch_size)}};
  if (!step.is_skipped) both.insert(both.end(), step.losses.begin(), step.losses.end());
  if (config_.log_loss_scale_to_tensorboard) both.emplace_back("loss-scale", step.loss_scale);
  if (config_.log_world_size_to_tensorboard)
    both.emplace_back("world-size", static_cast<double>(step.world_size));
  add_if(both, "grad-norm", step.grad_norm);
  add_if(both, "num-zeros", step.num_zeros);
  add_if(both, "max_attention_logit", step.max_attention_logit);
  add_if(both, "params-norm", step.params_norm);

  std::vector<TaggedValue> over_iterations;
  add_if(over_iterations, "decoupled-learning-rate", step.decoupled_learning_rate);
  if (step.skipped_samples > 0)
    over_iterations.emplace_back("skipped-train-samples",
                                 static_cast<double>(step.skipped_samples));
  if (config_.log_memory_to_tensorboard && step.memory) {
    over_iterations.emplace_back("mem-reserved-bytes", step.memory->reserved_bytes);
    over_iterations.emplace_back("mem-allocated-bytes", step.memory->allocated_bytes);
    over_iterations.emplace_back(
        "mem-max-allocated-bytes",
        step.memory->max_allocated_bytes.value_or(step.memory->max_reserved_bytes));
    add_if(over_iterations, "mem-allocated-count", step.memory->allocated_count);
  }
  for (const AxisCommStats& axis : step.traffic) {
    over_iterations.emplace_back("communication-bytes/" + axis.axis,
                                 static_cast<double>(axis.bytes));
    over_iterations.emplace_back("communication-exposed-ms/" + axis.axis, axis.exposed_ms);
  }
  if (step.hybrid_context) {
    over_iterations.emplace_back("hybrid-context/imbalance", step.hybrid_context->imbalance);
    over_iterations.emplace_back("hybrid-context/padding", step.hybrid_context->padding);
    over_iterations.emplace_back("hybrid-context/microbatches",
                                 static_cast<double>(step.hybrid_context->num_microbatches));
  }
  for (const LayerRouting& layer : step.routing) {
    if (!step.logs_layers_routing) break;
    const std::string suffix = "_layer_" + std::to_string(layer.layer);  // Megatron's tags
    for (const auto& [name, value] : layer.losses)
      over_iterations.emplace_back("moe/" + name + suffix, value);
    over_iterations.emplace_back("moe/load_imbalance" + suffix, layer.imbalance());
    over_iterations.emplace_back("moe/router_entropy" + suffix, layer.entropy);
    over_iterations.emplace_back("moe/dropped_choices" + suffix, layer.dropped);
  }
  if (!over_iterations.empty()) file_.add_scalars(over_iterations, step.iteration);
  add_over_both(both, step.iteration, step.consumed_samples);
}

void TensorBoard::add(const IntervalMetrics& interval) {
  if (!config_.log_timers_to_tensorboard) return;
  std::vector<TaggedValue> values{{"iteration-time", interval.iteration_s}};
  add_if(values, "throughput", interval.throughput);
  for (const auto& [name, seconds] : interval.timer_means)
    values.emplace_back(name + "-time", seconds);
  file_.add_scalars(values, interval.iteration);
}

void TensorBoard::add(const EvaluationMetrics& evaluation) {
  std::vector<TaggedValue> values;
  for (const auto& [name, loss] : evaluation.losses) {
    const std::string tag = name + " " + evaluation.split + evaluation.suffix;
    values.emplace_back(tag, loss);
    if (config_.log_validation_ppl_to_tensorboard && has_perplexity(name))
      values.emplace_back(tag + " ppl", perplexity(loss));
  }
  add_over_both(values, evaluation.iteration, evaluation.consumed_samples);
  flush();
}

void TensorBoard::flush() { file_.flush(); }

}  // namespace megatron
