// The drawing of report.h: three panels, one for each latency.
#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/base/words.h"
#include "megatron/load_test/report.h"
#include "megatron/schedules/drawn_steps.h"

namespace megatron {
namespace {

constexpr double kPanel = 380, kWidth = 306, kLeft = 56, kTop = 92, kBottom = 324, kHeight = 370;

constexpr const char* kStyle =
    "<style>svg{--page:#fff;--text:#1d2433;--quiet:#667085;--grid:#e6e8ed;--c0:#2f6fde;"
    "--c1:#e07b1f;--c2:#c2417c}@media(prefers-color-scheme:dark){svg{--page:#12151c;"
    "--text:#e6e9f0;--quiet:#97a1b5;--grid:#2a3140;--c0:#6ea0ff;--c1:#f2a65a;--c2:#f07bb0}}"
    "text{font:11px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--quiet)}"
    ".page{fill:var(--page)}.title{font-size:16px;font-weight:600;fill:var(--text)}"
    ".head{font-size:13px;font-weight:600;fill:var(--text)}.end{text-anchor:end}"
    ".middle{text-anchor:middle}.grid{stroke:var(--grid)}"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}.c0{stroke:var(--c0)}"
    ".c1{stroke:var(--c1)}.c2{stroke:var(--c2)}</style>\n";

struct Line {
  const char* name;
  std::vector<std::pair<double, double>> points;
};

/// One scale of a panel, from 0 to a tick that is not below the largest value.
struct Scale {
  double first, last, tick, most;  ///< first, last: pixels
  Scale(double from, double to, double largest)
      : first(from),
        last(to),
        tick(tick_distance(std::max(largest, 1e-9) / 5)),
        most(tick * std::max(1.0, std::ceil(largest / tick))) {}
  double at(double value) const { return first + (last - first) * value / most; }
};

std::string text_at(const char* style, double x, double y, const std::string& text) {
  return format("<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", style, x, y, text.c_str());
}

std::string draw_panel(const std::vector<Line>& lines, double left, const char* x_title,
                       const char* y_title) {
  double most_x = 0, most_y = 0;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points)
      most_x = std::max(most_x, x), most_y = std::max(most_y, y);
  }
  const Scale xs(left, left + kWidth, most_x), ys(kBottom, kTop, most_y);
  std::string svg = text_at("middle", left + kWidth / 2, kBottom + 34, x_title) +
                    text_at("end", left - 6, kTop - 14, y_title);
  for (double y = 0; y <= ys.most * 1.001; y += ys.tick)
    svg += format("<path class=\"grid\" d=\"M%.1f %.1fh%g\"/>", left, ys.at(y), kWidth) +
           text_at("end", left - 6, ys.at(y) + 4, format("%.6g", y));
  for (double x = 0; x <= xs.most * 1.001; x += xs.tick)
    svg += text_at("middle", xs.at(x), kBottom + 16, format("%.6g", x));
  for (std::size_t i = lines.size(); i-- > 0;) {
    const double key_x = left + kWidth - 196 + 72 * static_cast<double>(i);
    std::string path = format("M%g %gh14", key_x, kTop - 18);
    if (lines.size() > 1) svg += text_at("", key_x + 19, kTop - 14, lines[i].name);
    if (lines.size() == 1) path.clear();
    char command = 'M';
    for (const auto& [x, y] : lines[i].points) {
      path += format("%c%.1f %.1f", command, xs.at(x), ys.at(y));
      command = 'L';
    }
    svg += format("<path class=\"line c%zu\" d=\"%s\"/>\n", i, path.c_str());
  }
  return svg;
}

/// Returns the lines of a panel: quantiles over the loads, or the distribution of a single one.
std::vector<Line> lines_of(std::span<const Measurements> loads,
                           std::vector<double> Measurements::*times) {
  constexpr double kPoints = 200;
  std::vector<Line> lines;
  if (loads.size() == 1) {
    Line& line = lines.emplace_back("share");
    for (double i = 0; i <= kPoints; ++i)
      line.points.emplace_back(1000 * quantile(loads[0].*times, i / kPoints), 100 * i / kPoints);
    return lines;
  }
  for (const auto& [name, share] : {std::pair{"median", 0.5}, {"p95", 0.95}, {"p99", 0.99}}) {
    Line& line = lines.emplace_back(name);
    for (const Measurements& m : loads)
      line.points.emplace_back(m.per_second(static_cast<double>(m.num_completed)),
                               1000 * quantile(m.*times, share));
    std::ranges::stable_sort(line.points);
  }
  return lines;
}

}  // namespace

std::string latency_svg(std::span<const Measurements> loads, const std::string& title) {
  const std::string safe = escaped_text(title, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}});
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g "
      "%g\">\n%s<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>"
      "<text class=\"title\" x=\"%g\" y=\"30\">%s</text>\n",
      3 * kPanel, kHeight, 3 * kPanel, kHeight, kStyle, kLeft, safe.c_str());
  double left = kLeft;
  for (const auto& [name, times] : {std::pair{"Time to first token", &Measurements::first_token},
                                    {"Inter-token latency", &Measurements::inter_token},
                                    {"End to end", &Measurements::end_to_end}}) {
    const bool is_one = loads.size() == 1;
    svg += text_at("head", left, kTop - 38, name);
    svg += draw_panel(lines_of(loads, times), left, is_one ? "milliseconds" : "requests per second",
                      is_one ? "%" : "ms");
    left += kPanel;
  }
  return svg + "</svg>\n";
}

}  // namespace megatron
