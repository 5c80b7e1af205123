#include "megatron/metrics/report/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "megatron/base/format.h"
#include "megatron/base/median.h"
#include "megatron/base/progress_bar.h"

namespace megatron {
namespace {

/// Formats 124439808 as "124.4 M".
std::string short_number(double value) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& [size, unit] : kUnits) {
    if (value >= size) return format("%.4g%s", value / size, unit);
  }
  return format("%.6g", value);
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

/// Reads fields of the record of the last start; any of them may be missing.
class Start {
 public:
  explicit Start(const RunLog& log)
      : run_(log.starts.empty() ? Json::object() : *log.starts.back()) {
    if (!run_.is_object()) run_ = Json::object();
  }
  std::string text(const char* key) const { return text_in(run_, key); }
  std::optional<double> number(const char* key) const { return number_in(run_, key); }
  std::string setting(const char* name) const {
    const auto settings = run_.find("settings");
    return settings == run_.end() || !settings->is_object() ? "" : text_in(*settings, name);
  }
  /// Returns the objects of a list.
  std::vector<Json> list(const char* key) const {
    std::vector<Json> objects;
    const auto found = run_.find(key);
    if (found == run_.end() || !found->is_array()) return objects;
    for (const Json& object : *found) {
      if (object.is_object()) objects.push_back(object);
    }
    return objects;
  }
  SummaryRows settings() const {
    SummaryRows rows;
    const auto found = run_.find("settings");
    if (found == run_.end() || !found->is_object()) return rows;
    for (const auto& [name, value] : found->items())
      rows.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    return rows;
  }
  double setting_number(const char* name) const {
    return std::strtod(setting(name).c_str(), nullptr);
  }

 private:
  Json run_;
};

/// Returns the series of a key; for " loss…", of the first key that ends so.
const Series* find(const std::map<std::string, Series, std::less<>>& group, std::string_view key) {
  const auto found =
      key.starts_with(' ')
          ? std::ranges::find_if(group, [&](const auto& one) { return one.first.ends_with(key); })
          : group.find(key);
  return found == group.end() || found->second.x.empty() ? nullptr : &found->second;
}

double finite_median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? std::nan("") : median(std::move(values));
}

double finite_sum(const Series& series) {
  return std::accumulate(series.y.begin(), series.y.end(), 0.0, [](double sum, double value) {
    return std::isfinite(value) ? sum + value : sum;
  });
}

double finite_mean(std::span<const double> values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (std::isfinite(value)) sum += value, ++count;
  }
  return count > 0 ? sum / count : std::nan("");
}

class Summary {
 public:
  explicit Summary(const RunLog& log) : log_(log), start_(log) {}

  SummaryRows rows() {
    add("Model", model());
    if (const auto parameters = start_.number("parameters"))
      add("Parameters", short_number(*parameters));
    add("Batch", batch());
    add("Layout", layout());
    add("Iterations", iterations());
    add("Tokens", tokens());
    add("Training data", epochs());
    add("Loss", last_loss());
    add("Best validation", best_validation());
    if (const Series* skipped = find(log_.steps, "skipped"))
      add("Skipped updates", format("%.0f", finite_sum(*skipped)));
    add("Speed", speed());
    if (const Series* elapsed = find(log_.steps, "elapsed_ms"))
      add("Time in steps", duration_text(finite_sum(*elapsed) / 1000));
    add("Starts", starts());
    add("Machine", start_.text("machine"));
    if (log_.unreadable_lines > 0) {
      add("Unreadable lines",
          format("%lld of %lld; ", static_cast<long long>(log_.unreadable_lines),
                 static_cast<long long>(log_.lines)) +
              log_.first_unreadable);
    }
    return std::move(rows_);
  }

 private:
  void add(const char* title, const std::string& text) {
    if (!text.empty()) rows_.emplace_back(title, text);
  }
  std::string model() const {
    if (start_.setting("num_layers").empty()) return "";
    return start_.setting("num_layers") + " layers × " + start_.setting("hidden_size") +
           " hidden × " + start_.setting("num_attention_heads") + " heads, " +
           start_.setting("position_embedding_type") + ", " + start_.setting("normalization");
  }
  std::string batch() const {
    if (start_.setting("global_batch_size").empty()) return "";
    return start_.setting("global_batch_size") + " × " + start_.setting("seq_length") +
           " tokens, " + start_.setting("micro_batch_size") + " at a time";
  }
  std::string layout() const {
    if (start_.setting("tensor_model_parallel_size").empty()) return "";
    std::string text = "tp " + start_.setting("tensor_model_parallel_size") + ", pp " +
                       start_.setting("pipeline_model_parallel_size") + ", cp " +
                       start_.setting("context_parallel_size");
    if (const auto replicas = start_.number("data_parallel_size"))
      text += format(", dp %.0f", *replicas);
    if (const auto ranks = start_.number("world_size"))
      text += format(*ranks == 1 ? " (%.0f rank)" : " (%.0f ranks)", *ranks);
    return text;
  }
  /// Returns the number of epochs of each corpus.
  std::string epochs() const {
    std::string text;
    for (const Json& share : start_.list("data")) {
      const auto epochs = number_in(share, "epochs"), tokens = number_in(share, "tokens");
      if (text_in(share, "split") != "train" || !epochs || !tokens) continue;
      text += (text.empty() ? "" : "; ") + text_in(share, "source") +
              format(": %.3g epochs of %s tokens", *epochs, short_number(*tokens).c_str());
    }
    return text;
  }
  std::string iterations() const {
    const Series* loss = find(log_.steps, " loss");
    if (loss == nullptr) return "";
    const std::string planned = start_.setting("train_iters");
    return format("%.0f", loss->x.back()) + (planned.empty() ? "" : " of " + planned);
  }
  std::string tokens() const {
    const Series* samples = find(log_.steps, "consumed_train_samples");
    const double length = start_.setting_number("seq_length");
    return samples == nullptr || length <= 0 ? "" : short_number(samples->y.back() * length);
  }
  std::string last_loss() const {
    const Series* loss = find(log_.steps, " loss");
    return loss == nullptr
               ? ""
               : format("%.4f at the end, %.4f at the start", loss->y.back(), loss->y.front());
  }
  std::string best_validation() const {
    const Series* loss = find(log_.evaluations, " loss validation");
    if (loss == nullptr) return "";
    std::size_t best = 0;
    for (std::size_t i = 1; i < loss->y.size(); ++i) {
      if (loss->y[i] < loss->y[best] || std::isnan(loss->y[best])) best = i;
    }
    return format("%.4f (perplexity %.4g) at iteration %.0f", loss->y[best],
                  std::exp(std::min(20.0, loss->y[best])), loss->x[best]);
  }
  std::string speed() const {
    const Series* tokens = find(log_.steps, "tokens_per_second");
    if (tokens == nullptr) return "";
    std::string text = short_number(finite_median(tokens->y)) + " tokens/s";
    if (const Series* tflops = find(log_.steps, "tflops"))
      text += format(", %.3g TFLOP/s", finite_median(tflops->y));
    if (const Series* mfu = find(log_.steps, "mfu"))
      text += format(", MFU %.1f %%", finite_median(mfu->y) * 100);
    return text + " (medians)";
  }
  std::string starts() const {
    std::string text = log_.starts.empty() ? "" : std::to_string(log_.starts.size());
    if (log_.starts.size() > 1) {
      text += ", resumed after iteration";
      for (std::size_t i = 1; i < std::min<std::size_t>(log_.start_iterations.size(), 9); ++i) {
        text += (i > 1 ? ", " : " ") + std::to_string(log_.start_iterations[i]);
      }
      if (log_.start_iterations.size() > 9) text += ", …";
    }
    return text;
  }

  const RunLog& log_;
  Start start_;
  SummaryRows rows_;
};

}  // namespace

SummaryRows summarise(const RunLog& log) { return Summary(log).rows(); }

SummaryRows last_settings(const RunLog& log) { return Start(log).settings(); }

DownsampledSeries downsample(const Series& series, std::size_t limit) {
  const std::size_t size = series.x.size();
  if (size <= limit || limit < 4) return {.points = series, .means = {}};
  const std::size_t stretches = limit / 2;
  DownsampledSeries result;
  for (std::size_t stretch = 0; stretch < stretches; ++stretch) {
    const std::size_t begin = stretch * size / stretches, end = (stretch + 1) * size / stretches;
    std::size_t lowest = begin, highest = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isnan(series.y[lowest]) && !(series.y[i] >= series.y[lowest])) lowest = i;
      if (!std::isnan(series.y[highest]) && !(series.y[i] <= series.y[highest])) highest = i;
    }
    const double mean = finite_mean({series.y.data() + begin, end - begin});
    const auto [first, second] = std::minmax(lowest, highest);
    for (std::size_t i = first; i <= second; i += std::max<std::size_t>(1, second - first)) {
      result.points.add(series.x[i], series.y[i]);
      result.means.push_back(mean);
    }
  }
  return result;
}

Series cumulative_sum(const Series& series, double factor) {
  Series sums;
  double sum = 0;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (std::isfinite(series.y[i])) sum += series.y[i] * factor;
    sums.add(series.x[i], sum);
  }
  return sums;
}

std::optional<Histogram> histogram(const std::vector<double>& values, std::size_t bins) {
  std::vector<double> sorted = values;
  std::erase_if(sorted, [](double value) { return !std::isfinite(value); });
  if (sorted.empty() || bins == 0) return std::nullopt;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double share) {
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  };
  const double low = sorted.front(), high = std::max(at(0.99), low);
  Histogram result{.first = low,
                   .width = high > low ? (high - low) / static_cast<double>(bins) : 1,
                   .counts = std::vector<std::int64_t>(bins, 0),
                   .median = at(0.5),
                   .p95 = at(0.95),
                   .highest = sorted.back()};
  for (const double value : sorted) {
    if (value > high) {
      ++result.above;
    } else {
      ++result.counts[std::min(bins - 1, static_cast<std::size_t>((value - low) / result.width))];
    }
  }
  return result;
}

}  // namespace megatron
