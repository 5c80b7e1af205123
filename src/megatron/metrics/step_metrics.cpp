#include "megatron/metrics/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/base/json_text.h"
#include "megatron/config/settings.h"

namespace megatron {
namespace {

template <class T>
void add_if(JsonText& line, const char* key, const std::optional<T>& value) {
  if (value) line[key] = *value;
}

/// Returns the routing of all layers: one number or list for each.
JsonText routing_json(const StepMetrics& step) {
  JsonText json;
  for (const LayerRouting& layer : step.routing) {
    json["layers"].push_back(layer.layer);
    json["imbalance"].push_back(layer.imbalance());
    json["entropy"].push_back(layer.entropy);
    json["dropped"].push_back(layer.dropped);
    if (!step.logs_layers_routing) continue;
    json["load"].push_back(layer.load);
    for (const auto& [name, value] : layer.losses) json[name].push_back(value);
  }
  return json;
}

JsonText ranks_json(const std::vector<RankTime>& ranks) {
  JsonText json = JsonText::array();
  for (const RankTime& rank : ranks)
    json.push_back({{"rank", rank.rank}, {"ms", rank.seconds * 1000}});
  return json;
}

/// Returns the own time per step of the fastest and slowest ranks, by part.
JsonText own_time_json(const StragglerMetrics& metrics) {
  JsonText json{{"first_iteration", metrics.first_iteration},
                {"last_iteration", metrics.last_iteration}};
  for (const PartTimes& part : metrics.parts)
    json[part.part] = {{"fastest", ranks_json(part.fastest)},
                       {"slowest", ranks_json(part.slowest)}};
  return json;
}

JsonText stragglers_json(const StragglerMetrics& metrics) {
  JsonText json = JsonText::array();
  for (const Straggler& straggler : metrics.stragglers) {
    JsonText parts;
    for (const SlowPart& part : straggler.parts)
      parts[part.part] = {
          {"own_ms", part.own_s * 1000}, {"peers_ms", part.peers_s * 1000}, {"ratio", part.ratio}};
    json.push_back({{"rank", straggler.rank}, {"host", straggler.host}, {"parts", parts}});
  }
  return json;
}

}  // namespace

double LayerRouting::imbalance() const {
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  if (sum <= 0) return 0;
  return *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum;
}

std::vector<std::pair<std::string, double>> mean_losses(const std::vector<LayerRouting>& layers) {
  std::vector<std::pair<std::string, double>> means;
  if (layers.empty()) return means;
  means = layers.front().losses;
  for (auto& [name, mean] : means) mean = 0;
  for (const LayerRouting& layer : layers) {
    for (std::size_t i = 0; i < means.size(); ++i)
      means[i].second += layer.losses[i].second / static_cast<double>(layers.size());
  }
  return means;
}

bool has_perplexity(std::string_view name) { return name != "accuracy"; }

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

JsonText json_line(const StepMetrics& step) {
  JsonText line{{"iteration", step.iteration}, {"consumed_train_samples", step.consumed_samples}};
  for (const auto& [name, value] : step.losses) line[name] = value;
  line["learning_rate"] = step.learning_rate;
  add_if(line, "decoupled_learning_rate", step.decoupled_learning_rate);
  line["global_batch_size"] = step.global_batch_size;
  line["loss_scale"] = step.loss_scale;
  add_if(line, "grad_norm", step.grad_norm);
  add_if(line, "params_norm", step.params_norm);
  add_if(line, "num_zeros", step.num_zeros);
  add_if(line, "max_attention_logit", step.max_attention_logit);
  line["skipped"] = step.is_skipped;
  line["elapsed_ms"] = step.elapsed_s * 1000;
  line["tokens_per_second"] = step.throughput.tokens_per_second;
  line["tflops"] = step.throughput.flops_per_second / 1e12;
  add_if(line, "mfu", step.throughput.mfu);
  add_if(line, "mfu_causal", step.throughput.mfu_causal);
  for (const AxisCommStats& axis : step.traffic)
    line["communication"][axis.axis] = {
        {"calls", axis.calls}, {"bytes", axis.bytes}, {"exposed_ms", axis.exposed_ms}};
  if (step.hybrid_context)
    line["hybrid_context"] = {{"documents", step.hybrid_context->num_sequences},
                              {"microbatches", step.hybrid_context->num_microbatches},
                              {"imbalance", step.hybrid_context->imbalance},
                              {"padding", step.hybrid_context->padding}};
  if (!step.routing.empty()) line["routing"] = routing_json(step);
  if (step.stragglers) {
    line["own_time"] = own_time_json(*step.stragglers);
    line["stragglers"] = stragglers_json(*step.stragglers);
  }
  if (step.memory) line["memory_bytes"] = step.memory->reserved_bytes;
  return line;
}

JsonText json_line(const EvaluationMetrics& evaluation) {
  JsonText line{{"iteration", evaluation.iteration},
                {"consumed_train_samples", evaluation.consumed_samples},
                {"split", evaluation.split + evaluation.suffix}};
  for (const auto& [name, value] : evaluation.losses) {
    line[name] = value;
    if (has_perplexity(name)) line[name + " ppl"] = perplexity(value);
  }
  return line;
}

}  // namespace megatron
