#include <algorithm>

#include "megatron/base/format.h"
#include "megatron/schedules/draw_context.h"
#include "megatron/schedules/drawn_steps.h"

namespace megatron {
namespace {

constexpr double kLeft = 64, kPlot = 900, kRight = 24, kRow = 26, kBar = 20, kHead = 30, kFoot = 34;
constexpr double kMs = 1e3, kMinLabel = 12;

constexpr const char* kStyle =
    "<style>text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "fill:#444}.title{font-size:14px;font-weight:600;fill:#222}.right{text-anchor:end}"
    ".middle{text-anchor:middle}.track{fill:#f1f1f3}.grid{stroke:#d9d9de}"
    ".attention{fill:#2e62a8;stroke:#fff}.wait{fill:#b23e4c;stroke:#fff}.label{fill:#fff}</"
    "style>\n";

/// Draws one pass of a layer: a row of bars for each rank.
class PassDrawing {
 public:
  PassDrawing(const TitledPass& titled, double top)
      : titled_(titled),
        pass_(*titled.pass),
        top_(top),
        scale_(kPlot / std::max(pass_.run.makespan_s(), 1e-12)) {}

  double height() const { return kHead + kRow * static_cast<double>(pass_.steps.size()) + kFoot; }

  std::string text() const {
    std::string svg = format("<text class=\"title\" x=\"%g\" y=\"%.1f\">%s, %s (ms)</text>\n",
                             kLeft, top_ + 20, titled_.title.c_str(), pass_.name.c_str());
    svg += axis();
    for (std::size_t rank = 0; rank < pass_.steps.size(); ++rank) svg += row(rank);
    return svg;
  }

 private:
  std::string axis() const {
    const double bottom = top_ + height() - kFoot, end_ms = pass_.run.makespan_s() * kMs;
    const double distance = tick_distance(end_ms * 70 / kPlot);
    std::string svg;
    for (int i = 0; i * distance <= end_ms * (1 + 1e-9); ++i)
      svg += format(
          "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/><text class=\"middle\" x=\"%.1f\" "
          "y=\"%.1f\">%g</text>\n",
          kLeft + i * distance / kMs * scale_, top_ + kHead, bottom + 4,
          kLeft + i * distance / kMs * scale_, bottom + 16, i * distance);
    return svg;
  }

  std::string row(std::size_t rank) const {
    const double y = top_ + kHead + kRow * static_cast<double>(rank);
    std::string svg = format(
        "<text class=\"right\" x=\"%g\" y=\"%.1f\">rank %zu</text><rect class=\"track\" x=\"%g\" "
        "y=\"%.1f\" width=\"%g\" height=\"%g\"/>\n",
        kLeft - 8, y + kBar / 2 + 4, rank, kLeft, y, kPlot, kBar);
    for (std::size_t i = 0; i < pass_.steps[rank].size(); ++i)
      svg += bar(pass_.steps[rank][i], pass_.run.spans[rank][i], y);
    return svg;
  }

  std::string bar(const ContextStep& step, const StepSpan& span, double y) const {
    const double x = kLeft + span.begin_s * scale_, width = (span.end_s - span.begin_s) * scale_;
    if (width <= 0) return "";
    const bool computes = step.kind == ContextStepKind::attention;
    const std::string tooltip =
        computes
            ? format("step %lld: keys of %lld, %.4g GFLOP", static_cast<long long>(step.ring_step),
                     static_cast<long long>(step.source), step.flops / 1e9)
            : step.what + ", " + bytes_text(step.bytes);
    std::string svg = format(
        "<g><title>%s: %.4g to %.4g ms</title><rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" "
        "width=\"%.2f\" height=\"%g\" rx=\"2\"/>",
        tooltip.c_str(), span.begin_s * kMs, span.end_s * kMs, computes ? "attention" : "wait", x,
        y, width, kBar);
    if (computes && width >= kMinLabel)
      svg += format("<text class=\"label middle\" x=\"%.1f\" y=\"%.1f\">%lld</text>", x + width / 2,
                    y + kBar / 2 + 4, static_cast<long long>(step.source));
    return svg + "</g>\n";
  }

  const TitledPass& titled_;
  const ContextPass& pass_;
  double top_, scale_;
};

}  // namespace

std::string draw_context_svg(const std::vector<TitledPass>& passes) {
  std::string body;
  double top = 0;
  for (const TitledPass& titled : passes) {
    const PassDrawing drawing(titled, top);
    body += drawing.text();
    top += drawing.height();
  }
  const double width = kLeft + kPlot + kRight;
  body += format(
      "<rect class=\"attention\" x=\"%g\" y=\"%.1f\" width=\"14\" height=\"12\"/><text x=\"%g\" "
      "y=\"%.1f\">attention, with the place in the ring whose keys it sees</text><rect "
      "class=\"wait\" x=\"%g\" y=\"%.1f\" width=\"14\" height=\"12\"/><text x=\"%g\" "
      "y=\"%.1f\">exposed communication</text>\n",
      kLeft, top, kLeft + 20, top + 10, kLeft + 360, top, kLeft + 380, top + 10);
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
             "viewBox=\"0 0 %.0f %.0f\">\n",
             width, top + 24, width, top + 24) +
         kStyle +
         format("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, top + 24) + body +
         "</svg>\n";
}

}  // namespace megatron
