#include "megatron/metrics/report/page.h"

#include <cmath>

#include "megatron/base/json_text.h"
#include "megatron/metrics/report/assets.h"
#include "megatron/metrics/report/summary.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxChartPoints = 2000;
constexpr std::size_t kHistogramBins = 60;

/// Formats a number with seven digits, more than a chart shows; NaN becomes null.
JsonText rounded(const std::vector<double>& values) {
  JsonText list = JsonText::array();
  for (const double value : values) {
    if (!std::isfinite(value)) {
      list.push_back(nullptr);
    } else {
      const double scale =
          value == 0 ? 1 : std::pow(10.0, 6 - std::floor(std::log10(std::abs(value))));
      list.push_back(std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value);
    }
  }
  return list;
}

JsonText json_of(const Series& series) {
  const DownsampledSeries drawn = downsample(series, kMaxChartPoints);
  JsonText object{{"x", drawn.points.x}, {"y", rounded(drawn.points.y)}};
  if (!drawn.means.empty()) object["means"] = rounded(drawn.means);
  return object;
}

JsonText json_of(const Histogram& bins) {
  return {{"first", bins.first},   {"width", bins.width}, {"counts", bins.counts},
          {"median", bins.median}, {"p95", bins.p95},     {"highest", bins.highest},
          {"above", bins.above}};
}

JsonText json_of(const ExpertLoads& loads) {
  JsonText object{{"iteration", loads.iteration},
                  {"layers", loads.layers},
                  {"loads", JsonText::array()},
                  {"relative", JsonText::array()}};
  for (const auto& row : loads.loads) object["loads"].push_back(rounded(row));
  for (const auto& row : relative_loads(loads)) object["relative"].push_back(rounded(row));
  return object;
}

JsonText json_of(const RunLog& run) {
  JsonText object{{"name", run.name},
                  {"summary", JsonText::array()},
                  {"settings", JsonText::array()},
                  {"series", JsonText::object()}};
  for (const auto& [title, text] : summarise(run))
    object["summary"].push_back(JsonText::array({title, text}));
  for (const auto& [name, value] : last_settings(run))
    object["settings"].push_back(JsonText::array({name, value}));
  for (const auto* group : {&run.steps, &run.evaluations}) {
    for (const auto& [key, series] : *group) object["series"][key] = json_of(series);
  }
  object["starts"] = run.start_iterations;
  object["has_routing"] = run.has_routing;
  if (!run.expert_loads.loads.empty()) object["expert_loads"] = json_of(run.expert_loads);
  const auto elapsed = run.steps.find("elapsed_ms");
  if (elapsed == run.steps.end()) return object;
  object["series"]["time_s"] = json_of(cumulative_sum(elapsed->second, 1e-3));
  if (const auto bins = histogram(elapsed->second.y, kHistogramBins))
    object["step_times"] = json_of(*bins);
  return object;
}

/// Returns JSON that is safe inside a script element: every "<" is escaped.
std::string script_json(const JsonText& value) {
  const std::string text = value.dump();
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

void replace_placeholder(std::string& page, std::string_view mark, std::string_view text) {
  if (const auto at = page.find(mark); at != std::string::npos) page.replace(at, mark.size(), text);
}

}  // namespace

std::string report_page(const std::vector<RunLog>& runs) {
  JsonText data = JsonText::array();
  for (const RunLog& run : runs) data.push_back(json_of(run));
  const ReportAssets& assets = report_assets();
  std::string page(assets.page);
  replace_placeholder(page, "/*style*/", assets.style);
  replace_placeholder(page, "/*scales*/", assets.scales);
  replace_placeholder(page, "/*chart*/", assets.chart);
  replace_placeholder(page, "/*heat_map*/", assets.heat_map);
  replace_placeholder(page, "/*controls*/", assets.controls);
  replace_placeholder(page, "/*runs*/", script_json(data));
  return page;
}

}  // namespace megatron
