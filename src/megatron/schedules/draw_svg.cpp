#include <algorithm>
#include <array>

#include "megatron/base/format.h"
#include "megatron/base/words.h"
#include "megatron/schedules/draw.h"
#include "megatron/schedules/drawn_steps.h"
#include "megatron/schedules/timeline.h"

namespace megatron {
namespace {

constexpr double kRow = 30, kBar = 24, kTop = 78, kCharacter = 6.4;
constexpr double kLeft = 64, kRight = 150;
constexpr double kWidest = 12000;

struct Colour {
  double red = 0, green = 0, blue = 0;
};

/// Colours of the first chunk; later chunks are lighter.
constexpr std::array<Colour, 4> kColours{
    {{46, 98, 168}, {178, 62, 76}, {206, 108, 36}, {58, 138, 84}}};

Colour colour_of(const Schedule& schedule, StepKind kind, std::int32_t chunk) {
  const double light =
      schedule.num_chunks > 1 ? 0.62 * chunk / static_cast<double>(schedule.num_chunks - 1) : 0;
  const Colour& base = kColours[static_cast<std::size_t>(kind)];
  return {base.red + (255 - base.red) * light, base.green + (255 - base.green) * light,
          base.blue + (255 - base.blue) * light};
}

/// Returns the CSS class of a kind and chunk.
std::string class_of(StepKind kind, std::int32_t chunk) {
  return format("%c%d", "fbiw"[static_cast<std::size_t>(kind)], chunk);
}

std::string escaped(const std::string& text) {
  return escaped_text(text, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}});
}

class SvgDrawing {
 public:
  SvgDrawing(const Schedule& schedule, const Simulation& run)
      : schedule_(schedule), run_(run), scale_(choose_scale()) {
    plot_width_ = std::max(run.makespan_s * scale_, 1.0);
    bottom_ = kTop + kRow * static_cast<double>(schedule.ranks.size());
  }

  std::string text() const {
    const double width = kLeft + std::max(plot_width_, 420.0) + kRight, height = bottom_ + 52;
    std::string svg = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
        "%.0f %.0f\">\n",
        width, height, width, height);
    svg +=
        style() + format("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height);
    svg += format("<text class=\"title\" x=\"%g\" y=\"28\">%s</text>\n", kLeft,
                  escaped(title_of(schedule_)).c_str());
    svg += legend() + head() + axis();
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) svg += row(rank);
    return svg + format(
                     "<text class=\"note\" x=\"%g\" y=\"%.1f\">makespan %.6g, bubble of all ranks "
                     "together %.1f %%</text>\n</svg>\n",
                     kLeft, bottom_ + 42, run_.makespan_s, 100 * run_.total_bubble());
  }

 private:
  /// Returns pixels per second such that the number fits into the shortest step.
  double choose_scale() const {
    double shortest = run_.makespan_s;
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (const DrawnStep& cell : drawn_steps(schedule_, run_, rank)) {
        if (cell.end_s > cell.begin_s) shortest = std::min(shortest, cell.end_s - cell.begin_s);
      }
    }
    if (run_.makespan_s <= 0) return 1;
    const double room =
        9 + kCharacter * static_cast<double>(std::to_string(schedule_.num_microbatches - 1).size());
    return std::min(std::max(room, 18.0) / shortest, kWidest / run_.makespan_s);
  }

  double x_of(double time_s) const { return kLeft + time_s * scale_; }

  std::string style() const {
    std::string css =
        "text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
        "Sans',sans-serif;fill:#444}.title{font-size:16px;font-weight:600;fill:#222}"
        ".note{font-size:12px}.head{fill:#888}.right{text-anchor:end}.middle,.cell "
        "text{text-anchor:middle}.cell rect{stroke:#fff;stroke-width:1}"
        ".track{fill:#f1f1f3}.grid{stroke:#d9d9de;stroke-width:1}";
    for (const StepKind kind : kinds_of(schedule_)) {
      for (std::int32_t chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
        const Colour colour = colour_of(schedule_, kind, chunk);
        const bool is_dark = 0.3 * colour.red + 0.59 * colour.green + 0.11 * colour.blue < 165;
        const std::string name = class_of(kind, chunk);
        css += format(".%s rect{fill:#%02x%02x%02x}.%s text{fill:%s}", name.c_str(),
                      static_cast<unsigned>(colour.red), static_cast<unsigned>(colour.green),
                      static_cast<unsigned>(colour.blue), name.c_str(), is_dark ? "#fff" : "#222");
      }
    }
    return "<style>" + css + "</style>\n";
  }

  std::string legend() const {
    std::string svg;
    double x = kLeft;
    for (const StepKind kind : kinds_of(schedule_)) {
      for (std::int32_t chunk = 0; chunk < schedule_.num_chunks; ++chunk, x += 18) {
        svg += format(
            "<g class=\"cell %s\"><rect x=\"%.1f\" y=\"42\" width=\"18\" height=\"15\" rx=\"2\"/>",
            class_of(kind, chunk).c_str(), x);
        if (schedule_.num_chunks > 1)
          svg += format("<text x=\"%.1f\" y=\"53.5\">%d</text>", x + 9, chunk);
        svg += "</g>";
      }
      svg += format("<text x=\"%.1f\" y=\"53.5\">%s</text>\n", x + 6, description_of(kind));
      x += 26 + kCharacter * static_cast<double>(std::string(description_of(kind)).size());
    }
    return schedule_.num_chunks > 1
               ? svg +
                     format("<text class=\"head\" x=\"%.1f\" y=\"53.5\">shades: chunks</text>\n", x)
               : svg;
  }

  std::string head() const {
    const double x = kLeft + plot_width_;
    return format(
        "<text class=\"head right\" x=\"%.1f\" y=\"%g\">bubble</text><text class=\"head right\" "
        "x=\"%.1f\" y=\"%g\">peak kept</text>\n",
        x + 62, kTop - 6, x + 132, kTop - 6);
  }

  std::string axis() const {
    std::string svg;
    const double step = tick_distance(70 / scale_);
    for (std::int64_t i = 0; static_cast<double>(i) * step <= run_.makespan_s * (1 + 1e-9); ++i) {
      const double time = static_cast<double>(i) * step;
      svg += format(
          "<path class=\"grid\" d=\"M%.1f %gV%.1f\"/><text class=\"middle\" x=\"%.1f\" "
          "y=\"%.1f\">%g</text>\n",
          x_of(time), kTop, bottom_ + 4, x_of(time), bottom_ + 17, time);
    }
    return svg;
  }

  std::string row(std::size_t rank) const {
    const double y = kTop + kRow * static_cast<double>(rank) + (kRow - kBar) / 2,
                 text_y = y + kBar / 2 + 4;
    std::string svg = format(
        "<text class=\"right\" x=\"%g\" y=\"%.1f\">rank %zu</text><rect class=\"track\" x=\"%g\" "
        "y=\"%.1f\" width=\"%.1f\" height=\"%g\"/>\n",
        kLeft - 8, text_y, rank, kLeft, y, plot_width_, kBar);
    bool is_second = false;
    for (const DrawnStep& cell : drawn_steps(schedule_, run_, rank)) {
      svg += bar(rank, cell, y + (cell.is_joined && is_second ? kBar / 2 : 0),
                 cell.is_joined ? kBar / 2 : kBar);
      is_second = cell.step.joins_next;
    }
    const double x = kLeft + plot_width_;
    return svg + format(
                     "<text class=\"right\" x=\"%.1f\" y=\"%.1f\">%.1f %%</text><text "
                     "class=\"right\" x=\"%.1f\" y=\"%.1f\">%.4g</text>\n",
                     x + 62, text_y, 100 * run_.bubble(static_cast<std::int64_t>(rank)), x + 132,
                     text_y, run_.peak_activation[rank]);
  }

  std::string bar(std::size_t rank, const DrawnStep& cell, double y, double height) const {
    const double x = x_of(cell.begin_s), width = (cell.end_s - cell.begin_s) * scale_;
    const std::string number = std::to_string(cell.step.microbatch);
    std::string svg = format(
        "<g class=\"cell %s\"><title>%s, stage %lld: %.6g to %.6g%s</title><rect x=\"%.2f\" "
        "y=\"%.1f\" width=\"%.2f\" height=\"%g\" rx=\"2\"/>",
        class_of(cell.step.kind, cell.step.chunk).c_str(), label_of(schedule_, cell.step).c_str(),
        static_cast<long long>(
            schedule_.stage_of(static_cast<std::int64_t>(rank), cell.step.chunk)),
        cell.begin_s, cell.end_s, cell.is_joined ? ", interleaved with another" : "", x, y, width,
        height);
    if (width >= kCharacter * static_cast<double>(number.size()) + 1)
      svg += format("<text x=\"%.1f\" y=\"%.1f\">%s</text>", x + width / 2, y + height / 2 + 4,
                    number.c_str());
    return svg + "</g>\n";
  }

  const Schedule& schedule_;
  const Simulation& run_;
  double scale_;
  double plot_width_ = 0, bottom_ = 0;
};

}  // namespace

std::string draw_svg(const Schedule& schedule, const Simulation& run) {
  return SvgDrawing(schedule, run).text();
}

}  // namespace megatron
