#include "megatron/load_test/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/base/format.h"

namespace megatron {
namespace {

using Named = std::pair<const char*, double>;
constexpr Named kQuantiles[] = {{"median", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}};

struct Row {
  const char* title;
  const char* key;
  std::vector<double> Measurements::*times;
};
constexpr Row kRows[] = {{"time to first token", "ttft_ms", &Measurements::first_token},
                         {"inter-token latency", "itl_ms", &Measurements::inter_token},
                         {"end to end", "e2e_ms", &Measurements::end_to_end},
                         {"late start", "late_start_ms", &Measurements::late_start}};

double mean(const std::vector<double>& numbers) {
  const double sum = std::reduce(numbers.begin(), numbers.end());
  return numbers.empty() ? 0 : sum / static_cast<double>(numbers.size());
}

std::vector<Named> rates_of(const Measurements& m) {
  return {{"requests_per_s", m.per_second(static_cast<double>(m.num_completed))},
          {"input_tokens_per_s", m.per_second(static_cast<double>(m.input_tokens))},
          {"output_tokens_per_s", m.per_second(static_cast<double>(m.output_tokens))}};
}

}  // namespace

std::string measurements_text(const Measurements& m) {
  std::string text = format("%s: %zu requests completed and %zu failed in %.2f s\n",
                            m.load.name.c_str(), m.num_completed, m.num_failed, m.duration_s);
  for (const auto& [error, count] : m.errors)
    text += format("  %zu failed: %s\n", count, error.c_str());
  if (m.num_completed == 0) return text;
  for (const auto& [key, value] : rates_of(m)) text += format("  %-22s%10.2f\n", key, value);
  text += format("  %-22s%10s", "milliseconds", "mean");
  for (const auto& [name, share] : kQuantiles) text += format("%10s", name);
  for (const auto& [title, key, times] : kRows) {
    if ((m.*times).empty()) continue;
    text += format("\n  %-22s%10.2f", title, 1000 * mean(m.*times));
    for (const auto& [name, share] : kQuantiles)
      text += format("%10.2f", 1000 * quantile(m.*times, share));
  }
  return text + "\n";
}

std::string comparison_text(std::span<const Measurements> loads) {
  std::string text = format("%-20s%11s%11s%11s%11s%11s%11s%8s\n", "load", "requests/s", "tokens/s",
                            "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "failed");
  for (const Measurements& m : loads) {
    const std::vector<Named> rates = rates_of(m);
    text += format("%-20s%11.2f%11.1f", m.load.name.c_str(), rates[0].second, rates[2].second);
    for (const auto* times : {&m.first_token, &m.inter_token})
      text += format("%11.2f%11.2f", 1000 * quantile(*times, 0.5), 1000 * quantile(*times, 0.99));
    text += format("%8zu\n", m.num_failed);
  }
  return text;
}

JsonText measurements_json(const Measurements& m) {
  JsonText json{{"load", m.load.name},
                {"rate", std::isinf(m.load.arrivals.rate) ? JsonText() : m.load.arrivals.rate},
                {"max_concurrency", m.load.num_streams},
                {"completed", m.num_completed},
                {"failed", m.num_failed},
                {"errors", JsonText::object()},
                {"duration_s", m.duration_s},
                {"input_tokens", m.input_tokens},
                {"output_tokens", m.output_tokens}};
  for (const auto& [error, count] : m.errors) json["errors"][error] = count;
  for (const auto& [key, value] : rates_of(m)) json[key] = value;
  for (const auto& [title, key, times] : kRows) {
    if ((m.*times).empty()) continue;
    json[key]["mean"] = 1000 * mean(m.*times);
    for (const auto& [name, share] : kQuantiles) json[key][name] = 1000 * quantile(m.*times, share);
  }
  return json;
}

}  // namespace megatron
